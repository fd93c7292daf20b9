package transcript

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Milestone is the end of a phase of an election.
type Milestone struct {
	// Micros is the time since the election began, and TookMicros that since the last
	// milestone.
	Micros     int64  `json:"micros"`
	TookMicros int64  `json:"tookMicros"`
	Text       string `json:"text"`
}

func milestones(steps []*placed, e *Election) []Milestone {
	found := []Milestone{}
	add := func(i int, format string, arguments ...any) {
		m := Milestone{Micros: steps[i].at.Sub(e.Began).Microseconds(), Text: fmt.Sprintf(format, arguments...)}
		if len(found) > 0 {
			m.TookMicros = m.Micros - found[len(found)-1].Micros
		}
		found = append(found, m)
	}
	last := -1
	for i, s := range steps {
		if e.Coordinator != "" && s.Step == s.part.settled && s.part.journal.Agent != e.Coordinator {
			last = i
		}
	}
	for i, s := range steps {
		agent := s.part.journal.Agent
		if s.Step == s.part.lost && (len(found) == 0 || agent == e.Coordinator) {
			add(i, "%s", loss(s, e))
		}
		if agent == e.Former {
			addResignation(s, func(text string) { add(i, "%s", text) })
		}
		if agent == e.Coordinator {
			addSuccess(s, e, func(text string) { add(i, "%s", text) })
		}
		if i == last {
			add(i, "%s follows %s, as the last agent of this transcript", agent, e.Coordinator)
		}
	}
	return found
}

// external are the causes that come from outside of the election.
var external = []control.EndCause{
	control.EndExcluded, control.EndStopped, control.EndSessionClosed, control.EndNotRenewed, control.EndProbeFailed,
}

func loss(s *placed, e *Election) string {
	agent := s.part.journal.Agent
	switch {
	case inputKinds[s.Input] == election.StepDown:
		return fmt.Sprintf("%s is requested to step down", agent)
	case agent == e.Former && e.Cause == control.EndLapse:
		return fmt.Sprintf("%s can't renew its lease and gives up the office", agent)
	case agent == e.Former && slices.Contains(external, e.Cause):
		return e.describeCause()
	case agent == e.Former:
		return fmt.Sprintf("%s begins to hand over", agent)
	case inputKinds[s.Input] == election.Ended:
		return fmt.Sprintf("%s finds that the process of %s has ended", agent, e.Former)
	case s.Message != nil && messageKinds[s.Message.Kind] == election.Resigned:
		return fmt.Sprintf("%s receives the resignation of %s", agent, e.Former)
	}
	return fmt.Sprintf("%s has not heard from %s for the suspicion timeout", agent, e.Former)
}

func addResignation(s *placed, add func(string)) {
	if i := slices.IndexFunc(s.Events, isKind(election.OfficeResigned)); i >= 0 {
		text := s.part.journal.Agent + " resigns"
		if to := s.Events[i].Peer; to != "" {
			text += " in favor of " + to
		}
		add(text)
	}
}

func addSuccess(s *placed, e *Election, add func(string)) {
	elected := slices.ContainsFunc(s.Events, func(event journal.Event) bool { return isKind(election.Elected)(event) && event.Term == e.Term })
	switch begins := slices.ContainsFunc(s.Events, isKind(election.TenureStarted)); {
	case begins && e.Safety == "Available":
		add(e.Coordinator + " is coordinator: its tenure begins")
	case begins:
		add(e.Coordinator + " has the grants of a majority: its tenure begins")
	case elected:
		add(e.Coordinator + " wins the election")
	}
}

func isKind(kind election.EventKind) func(journal.Event) bool {
	return func(e journal.Event) bool { return eventKinds[e.Kind] == kind }
}
