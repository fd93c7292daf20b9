package controllers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// stage is a namespace with pods whose agents do as they are told, and operators
// that come and go.
type stage struct {
	t         testing.TB
	scheme    *runtime.Scheme
	client    client.Client
	namespace string
	wardrobe  *fakeagent.CertificateFactory
	network   fakeagent.Network

	mu     sync.Mutex
	bundle string
	turned chan struct{}
	agents map[string]*fakeagent.Agent
	ips    int
}

func newStage(t testing.TB) *stage {
	t.Helper()
	config := apiServer.Config(t)
	s := &stage{
		t: t, scheme: runtime.NewScheme(), wardrobe: newWardrobe(t),
		turned: make(chan struct{}), agents: map[string]*fakeagent.Agent{},
	}
	s.bundle = string(s.wardrobe.Authorities)
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(s.scheme); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if s.client, err = client.New(config, client.Options{Scheme: s.scheme}); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "stage-"}}
	if err := s.client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	s.namespace = namespace.Name
	return s
}

func newWardrobe(t testing.TB) *fakeagent.CertificateFactory {
	t.Helper()
	wardrobe, err := fakeagent.NewCertificateFactory()
	if err != nil {
		t.Fatal(err)
	}
	return wardrobe
}

// Bundle and Changed are of controllers.CA.
func (s *stage) Bundle(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []byte(s.bundle), nil
}

func (s *stage) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turned
}

// declared makes a group of members: the first has priority 10, the next 20...
func (s *stage) declared(name string, change func(*v1.ElectionGroup), pods ...string) *v1.ElectionGroup {
	s.t.Helper()
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	for i, pod := range pods {
		group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: pod, Priority: int32(10 * (i + 1))})
	}
	if change != nil {
		change(group)
	}
	if err := s.client.Create(s.t.Context(), group); err != nil {
		s.t.Fatal(err)
	}
	return group
}

func (s *stage) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: name}
}

func (s *stage) group(name string) *v1.ElectionGroup {
	s.t.Helper()
	group := &v1.ElectionGroup{}
	if err := s.client.Get(s.t.Context(), s.key(name), group); err != nil {
		s.t.Fatal(err)
	}
	return group
}

// edit changes a group as a user does.
func (s *stage) edit(name string, change func(*v1.ElectionGroup)) {
	s.t.Helper()
	group := s.group(name)
	patch := client.MergeFrom(group.DeepCopy())
	change(group)
	if err := s.client.Patch(s.t.Context(), group, patch); err != nil {
		s.t.Fatal(err)
	}
}

// await waits for a condition.
func (s *stage) await(what string, holds func() bool) {
	s.t.Helper()
	late := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-late:
			s.t.Fatalf("waited in vain until %s\n%s", what, s.describe())
		}
	}
}

// describe is what a test that fails shows.
func (s *stage) describe() string {
	var groups v1.ElectionGroupList
	if err := s.client.List(context.Background(), &groups, client.InNamespace(s.namespace)); err != nil {
		return err.Error()
	}
	var text strings.Builder
	for i := range groups.Items {
		status, err := json.MarshalIndent(groups.Items[i].Status, "", " ")
		fmt.Fprintln(&text, groups.Items[i].Name, string(status), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, agent := range s.agents {
		fmt.Fprintf(&text, "%s was told %d times\n", name, len(agent.Calls()))
	}
	return text.String()
}

// awaitCoordinator waits until all that follows from an election is there.
func (s *stage) awaitCoordinator(group, pod string, term int64) {
	s.t.Helper()
	s.await(fmt.Sprintf("%s leads %s in term %d", pod, group, term), func() bool {
		status := s.group(group).Status
		return status.Coordinator != nil && status.Coordinator.Pod == pod && status.Term == term && status.Coordinator.Term == term
	})
}
