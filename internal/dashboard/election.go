package dashboard

import (
	"fmt"
	"net/http"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// shownElection is what the page shows of an election.
type shownElection struct {
	Text  string `json:"text"`
	Began string `json:"began"`
	// Coordinator and Term tell whether the group has elected again since.
	Coordinator string                 `json:"coordinator,omitempty"`
	Term        uint64                 `json:"term,omitempty"`
	Milestones  []transcript.Milestone `json:"milestones"`
	Cost        string                 `json:"cost"`
	Waited      string                 `json:"waited,omitempty"`
	Missing     []transcript.Missing   `json:"missing"`
	transcript.Sequence
}

func newShownElection(e *transcript.Election) *shownElection {
	return &shownElection{
		Text: e.Describe(), Began: e.Began.UTC().Format(time.RFC3339Nano), Coordinator: e.Coordinator, Term: e.Term,
		Milestones: e.Milestones, Cost: e.CountMessages(), Waited: e.DescribeWaits(), Missing: e.Missing,
		Sequence: e.Sequence(),
	}
}

// lastElection responds with the last election of a group. Requests wait for each other, so
// that the server has the journals of one group at a time in memory.
func (a *Actions) lastElection(w http.ResponseWriter, r *http.Request, g *v1.ElectionGroup) {
	switch {
	case !a.accepts(r):
		respondWithoutKey(w)
		return
	case g == nil:
		respond(w, http.StatusNotFound, result{Error: "there is no such group"})
		return
	case len(g.Status.Processes) > transcript.MaxLifelines:
		respond(w, http.StatusBadRequest, result{Error: fmt.Sprintf(
			"the group has %d members; the elections of up to %d are shown here, and others by kubectl conclave explain",
			len(g.Status.Processes), transcript.MaxLifelines)})
		return
	}
	a.reading.Lock()
	defer a.reading.Unlock()
	if r.Context().Err() != nil {
		return // The page was closed meanwhile.
	}
	e, err := a.LastElection(r.Context(), g)
	if err != nil {
		respond(w, http.StatusBadGateway, result{Error: err.Error()})
		return
	}
	respond(w, http.StatusOK, newShownElection(e))
}
