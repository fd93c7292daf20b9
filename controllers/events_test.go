package controllers

import (
	"context"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// fakeEventClient records the notes of the events that it creates.
type fakeEventClient struct {
	client.Client
	notes []string
}

func (c *fakeEventClient) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if event, ok := object.(*eventsv1.Event); ok {
		c.notes = append(c.notes, event.Note)
	}
	return nil
}

// The API server rejects an event with a longer note, and names of pods can be long.
func TestLongNoteIsTruncated(t *testing.T) {
	events := &fakeEventClient{}
	r := &Reconciler{writer: events}
	must.Succeed(t, r.createEvent(t.Context(), &v1.ElectionGroup{}, groupstatus.Event{Note: strings.Repeat("x", 1025)}))
	if len(events.notes) != 1 || len(events.notes[0]) != 1024 || !strings.HasSuffix(events.notes[0], "x...") {
		t.Errorf("got notes %q, want one of 1024 bytes that ends with an ellipsis", events.notes)
	}
}
