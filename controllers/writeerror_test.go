package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// fakeEventClient records the notes of events, and responds with an error.
type fakeEventClient struct {
	client.Client
	notes []string
	err   error
}

func (c *fakeEventClient) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if event, ok := object.(*eventsv1.Event); ok {
		c.notes = append(c.notes, event.Note)
	}
	return c.err
}

// The API server rejects an event with a longer note, and names of pods can be long.
func TestLongNoteIsTruncated(t *testing.T) {
	events := &fakeEventClient{}
	r := &Reconciler{writer: events, options: Options{Leadership: NewLeadership()}}
	must.Succeed(t, r.createEvent(t.Context(), &v1.ElectionGroup{}, groupstatus.Event{Note: strings.Repeat("x", 1025)}))
	if len(events.notes) != 1 || len(events.notes[0]) != 1024 || !strings.HasSuffix(events.notes[0], "x...") {
		t.Errorf("got notes %q, want one of 1024 bytes that ends with an ellipsis", events.notes)
	}
}

func TestWriteErrorIsStable(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	label := func(pod string, cause error) error { return fmt.Errorf("label pod %s: %w", pod, cause) }
	forbidden := func(why string) error { return apierrors.NewForbidden(pods, "p", errors.New(why)) }
	var e writeError
	for _, step := range []struct {
		name string
		errs []error
		want string
	}{
		{"no error", nil, ""},
		{"no response", []error{errors.New("connection refused")}, ""},
		{"a conflict", []error{apierrors.NewConflict(pods, "p", errors.New("changed"))}, ""},
		{"two writes are rejected", []error{label("b", forbidden("no")), label("a",
			forbidden("try 1\nof 9"))}, `label pod a: pods "p" is forbidden: try 1 of 9`},
		{"with another text", []error{label("a", forbidden("try 2")), label("b",
			forbidden("no"))}, `label pod a: pods "p" is forbidden: try 1 of 9`},
		{
			"no response meanwhile", []error{errors.New("connection refused")}, `label pod a: pods "p" is forbidden: try 1 of 9`,
		},
		{"for another reason", []error{label("a", apierrors.NewBadRequest("odd"))}, "label pod a: odd"},
		{"for another pod", []error{label("b", apierrors.NewBadRequest("odd")), nil}, "label pod b: odd"},
		{"all writes succeed", []error{nil}, ""},
	} {
		e = e.next(step.errs...)
		expect.Equalf(t, e.text, step.want, "%s", step.name)
	}
	if e = e.next(label("a", forbidden(strings.Repeat("ä", maxWriteError)))); len(e.text) > maxWriteError ||
		!strings.HasSuffix(e.text, "ä...") {
		t.Errorf("got %q, want a truncated text", e.text)
	}
}

func TestPermissionForServicesIsMissing(t *testing.T) {
	for response, want := range map[string]bool{
		`User "manager" cannot patch resource "services" in API group "" in the namespace "bank"`:                       true,
		`User "manager" cannot patch resource "endpointslices" in API group "discovery.k8s.io" in the namespace "bank"`: true,
		`User "manager" cannot patch resource "pods" in API group "" in the namespace "bank"`:                           false,
		`exceeded quota: small, requested: services=1, used: services=9, limited: services=9`:                           false,
	} {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "front", errors.New(response))
		if got := (writeError{}).next(fmt.Errorf("apply Service front: %w", err)).servicesDenied(); got != want {
			t.Errorf("%s: got %+v, want a problem: %t", response, got, want)
		}
	}
}

func TestNamespacesTakeTurnsInTheWorkQueue(t *testing.T) {
	request := func(namespace string, i int) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("g-", i)}}
	}
	q := newQueue("test",
		workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Second))
	defer q.ShutDown()
	for i := range 1000 {
		q.Add(request("greedy", i))
	}
	q.Add(request("greedy", 0))
	q.Add(request("bank", 0))
	q.Add(request("bank", 1))
	expect.Equalf(t, q.Len(), 1002, "requests (each once: 1002)")
	for _, want := range []reconcile.Request{request("greedy", 0), request("bank", 0), request("greedy",
		1), request("bank", 1), request("greedy", 2), request("greedy", 3)} {
		got, _ := q.Get()
		expect.Equal(t, got, want)
		q.Done(got)
	}
}
