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
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// pagedGroups is an API server with many groups. It responds when it is released.
type pagedGroups struct {
	client.Reader

	groups   int
	released chan struct{}

	mu           sync.Mutex
	active, most int
	unpaged      bool
}

// begin counts a list that has begun.
func (p *pagedGroups) begin(o *client.ListOptions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active++
	p.most = max(p.most, p.active)
	p.unpaged = p.unpaged || o.Limit == 0 || o.Limit > 100
}

func (p *pagedGroups) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
}

func (p *pagedGroups) isActive(lists int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active == lists
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

// TestGroupListsAreBounded: thirty pods are created in a namespace with a thousand groups.
func TestGroupListsAreBounded(t *testing.T) {
	const pods = 30
	server := &pagedGroups{groups: 1001, released: make(chan struct{})}
	reader := newGroupReader(server)
	var work sync.WaitGroup
	for range pods {
		work.Go(func() {
			groups, err := reader.groups(t.Context(), "bank")
			if err != nil || len(groups) != server.groups || groups[1000].Name != "group-1000" || groups[0].Status.Term != 0 {
				t.Errorf("got %d groups (%v), want %d, in their order and without status", len(groups), err, server.groups)
			}
		})
	}
	testwait.Until(t, "the lists have begun", func() bool { return server.isActive(maxGroupLists) })
	canceled, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := reader.groups(canceled, "bank"); err == nil {
		t.Error("got no error from a list that waits in vain")
	}
	close(server.released)
	work.Wait()
	if server.most > maxGroupLists || server.unpaged {
		t.Errorf("got %d lists at the same time, unpaged: %t, want at most %d, all with pages", server.most, server.unpaged, maxGroupLists)
	}
}
