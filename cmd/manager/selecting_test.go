package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// pagedGroups is an API server with many groups. It responds when it is released.
type pagedGroups struct {
	client.Reader

	groups   int
	released chan struct{}

	mu           sync.Mutex
	active, most int
	// of has the namespaces of the lists that have begun.
	of      map[string]int
	unpaged bool
}

// begin counts a list that has begun.
func (p *pagedGroups) begin(o *client.ListOptions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active++
	p.of[o.Namespace]++
	p.most = max(p.most, p.active)
	p.unpaged = p.unpaged || o.Limit == 0 || o.Limit > 10
}

func (p *pagedGroups) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
}

func (p *pagedGroups) begun(namespace string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[namespace]
}

// List implements client.Reader.
func (p *pagedGroups) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	p.begin(options)
	defer p.end()
	<-p.released
	first, _ := strconv.Atoi(options.Continue)
	into, _ := list.(*v1.ElectionGroupList)
	for i := first; i < p.groups; i++ {
		if i-first == int(options.Limit) {
			into.Continue = strconv.Itoa(i)
			break
		}
		group := v1.ElectionGroup{}
		group.Name, group.Status.Term = fmt.Sprint("group-", i), 7
		into.Items = append(into.Items, group)
	}
	return nil
}

// TestGroupListsAreBounded: thirty pods are created in a namespace with a thousand groups. They don't use up all lists.
func TestGroupListsAreBounded(t *testing.T) {
	const pods, share = 30, 4
	server := &pagedGroups{groups: 1001, released: make(chan struct{}), of: map[string]int{}}
	reader := newGroupReader(server)
	var work sync.WaitGroup
	list := func(namespace string) {
		var names []string
		err := reader.specs(t.Context(), namespace, func(page []v1.ElectionGroup) {
			for i := range page {
				names = append(names, page[i].Name)
				if page[i].Status.Term != 0 {
					t.Errorf("got %s with its status, want none", page[i].Name)
				}
			}
		})
		if err != nil || len(names) != server.groups || names[1000] != "group-1000" {
			t.Errorf("got %d groups (%v), want %d, in their order", len(names), err, server.groups)
		}
	}
	for range pods {
		work.Go(func() { list("greedy") })
	}
	testwait.Until(t, "the lists have begun", func() bool { return server.begun("greedy") >= share })
	canceled, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := reader.specs(canceled, "greedy", func([]v1.ElectionGroup) {}); err == nil {
		t.Error("got no error from a list that waits in vain")
	}
	for range pods {
		work.Go(func() { list("bank") })
	}
	testwait.Until(t, "another namespace has its share", func() bool { return server.begun("bank") >= share })
	expect.Equalf(t, server.begun("greedy"), share, "lists of one namespace at the same time")
	close(server.released)
	work.Wait()
	if server.most > maxGroupLists || server.unpaged {
		t.Errorf("got %d lists at the same time, large pages: %t, want at most %d, all with small pages", server.most,
			server.unpaged, maxGroupLists)
	}
}
