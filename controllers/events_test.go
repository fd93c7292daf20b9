package controllers

import (
	"context"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/groupstatus"
)

// scribe is a client that keeps the notes of the events that it creates.
type scribe struct {
	client.Client
	notes []string
}

func (s *scribe) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if event, ok := object.(*eventsv1.Event); ok {
		s.notes = append(s.notes, event.Note)
	}
	return nil
}

// The API server takes no note that is longer, and names of pods can be long.
func TestLongNoteIsCut(t *testing.T) {
	kept := &scribe{}
	o := &operator{client: kept}
	if err := o.record(t.Context(), &v1.ElectionGroup{}, groupstatus.Event{Note: strings.Repeat("x", 1025)}); err != nil {
		t.Fatal(err)
	}
	if len(kept.notes) != 1 || len(kept.notes[0]) != 1024 || !strings.HasSuffix(kept.notes[0], "x...") {
		t.Errorf("the notes are %q", kept.notes)
	}
}
