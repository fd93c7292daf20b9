package catalog_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
)

// A wait lasts as long as it lasts: a tick that comes early ends no wait, of an
// election or of a recovery, and in a process that waits for nothing it starts
// nothing.
func TestEarlyTickChangesNothing(t *testing.T) {
	for _, a := range catalog.All() {
		for _, begin := range []election.InputKind{election.NoInput, election.Campaign, election.Recover} {
			m := member(t, a, 1)
			var out election.Output
			m.Step(election.Input{Kind: begin, Now: 3}, &out)
			due := m.Deadline()
			if (due == election.Never) != (begin == election.NoInput) {
				t.Fatalf("%s waits until %d after the input %s", a.Name, due, begin)
			}
			out.Reset()
			before := string(m.Encode(nil, due-1))
			m.Step(election.Input{Kind: election.TimePassed, Now: due - 1}, &out)
			if len(out.Send)+len(out.Events) > 0 || m.Deadline() != due || string(m.Encode(nil, due-1)) != before {
				t.Errorf("%s, after the input %s, takes a tick before its deadline for one: %+v", a.Name, begin, out)
			}
		}
	}
}

// member is process 2 of four.
func member(t *testing.T, a catalog.Algorithm, term election.Term) election.Machine {
	t.Helper()
	roster, err := election.NewRoster(1, []election.Member{
		{ID: 1, Priority: 1}, {ID: 2, Priority: 2}, {ID: 3, Priority: 3}, {ID: 4, Priority: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := a.New(election.Config{
		Self: 2, Roster: roster, Term: term, Coordinator: 4, Timing: election.DefaultTiming(latency, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A process that waits in vain in the highest term has nothing more to start. It
// stops waiting, rather than asking for a tick for ever.
func TestNoWaitBeyondHighestTerm(t *testing.T) {
	for _, a := range catalog.All() {
		m := member(t, a, election.MaxTerm-1)
		var out election.Output
		m.Step(election.Input{Kind: election.Campaign}, &out)
		if !a.Ring {
			m.Step(election.Input{Kind: election.Receive, Message: election.Message{
				Kind: election.OK, From: out.Send[0].To, To: 2, Term: election.MaxTerm,
			}}, &out)
		}
		out.Reset()
		m.Step(election.Input{Kind: election.TimePassed, Now: m.Deadline()}, &out)
		if s := m.Status(); len(out.Send) > 0 || m.Deadline() != election.Never || s.Electing || s.Term != election.MaxTerm {
			t.Errorf("%s: %+v, deadline %d, sends %v", a.Name, s, m.Deadline(), out.Send)
		}
	}
}

// That somebody else seems dead or alive, or that nobody leads any more, is no
// outcome: whoever waits for one still does.
func TestInputsAboutOthersDontEndWait(t *testing.T) {
	for _, a := range catalog.All() {
		for _, begin := range []election.InputKind{election.Campaign, election.Recover} {
			m := member(t, a, 1)
			var out election.Output
			m.Step(election.Input{Kind: begin, Now: 3}, &out)
			due := m.Deadline()
			for _, in := range []election.Input{
				{Kind: election.Suspect, Peer: 1},
				{Kind: election.Restore, Peer: 1},
				{Kind: election.Suspect, Peer: 1, Ineligible: true},
				{Kind: election.Follow, Term: 1},
			} {
				out.Reset()
				in.Now = 4
				m.Step(in, &out)
				if !m.Status().Electing || m.Deadline() != due || len(out.Send) > 0 {
					t.Errorf("%s, after the input %s, takes %q for the outcome", a.Name, begin, in.Describe())
				}
			}
		}
	}
}

// A STALE says that there has been an election in a newer term. To who leads that
// is a reason to doubt, and to start one of its own when it hears nothing more; to
// everyone else it is none.
func TestOnlyCoordinatorWaitsAfterNewerTerm(t *testing.T) {
	for _, a := range catalog.All() {
		for _, leads := range []bool{false, true} {
			m := member(t, a, 1)
			var out election.Output
			if leads {
				m.Step(election.Input{Kind: election.Follow, Peer: 2, Term: 1}, &out)
			}
			m.Step(election.Input{Kind: election.Receive, Now: 5, Message: election.Message{
				Kind: election.Stale, From: 1, To: 2, Term: 9,
			}}, &out)
			if s := m.Status(); s.Term != 9 || s.Electing != leads || (m.Deadline() != election.Never) != leads {
				t.Errorf("%s: leads: %v, and after a STALE: %+v, deadline %d", a.Name, leads, s, m.Deadline())
			}
		}
	}
}

// Whoever waited in vain and has started again waits as long as the first time.
func TestSecondWaitIsAsLongAsFirst(t *testing.T) {
	for _, a := range catalog.All() {
		if !a.Ring {
			continue // there it depends on who answered
		}
		m := member(t, a, 1)
		var out election.Output
		m.Step(election.Input{Kind: election.Campaign}, &out)
		first := m.Deadline()
		m.Step(election.Input{Kind: election.TimePassed, Now: first}, &out)
		if got := m.Deadline(); got != 2*first {
			t.Errorf("%s waits until %d, and then until %d", a.Name, first, got)
		}
	}
}
