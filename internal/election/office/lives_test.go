package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// slow is a town of five in which the clock of process 5 is 50 terms behind, and
// process 4 leads in term 60. When 4 ends, 1 starts the election of term 61,
// which 5 wins, in a term that its own clock doesn't reach: its next life may
// find itself in that term again.
func slow(t *testing.T, mode office.Mode) (*town, *election.Roster) {
	t.Helper()
	roster := list(t, 1, 1, 2, 3, 4, 5)
	w := &town{t: t, mode: mode}
	w.tuned = func(c *office.Config) {
		c.Clock = election.TermClock{AtBoot: 100, Boot: w.at, TicksPerTerm: 1000}
		if c.Self == 5 {
			c.Clock.AtBoot = 50
		}
	}
	for _, m := range roster.Ring() {
		w.start(m.ID, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 60, 4 })
	}
	w.pass(heartbeat)
	w.wantHolder(4)
	return w, roster
}

// elect61 ends process 4 and lets 1 start the election of term 61. It returns the
// message with which 1 asks 5.
func elect61(w *town) election.Message {
	w.t.Helper()
	var asked election.Message
	before := w.cut
	w.cut = func(m *election.Message) bool {
		if m.Kind == election.Election && m.From == 1 && m.To == 5 {
			asked = *m
		}
		return before != nil && before(m) || m.Kind == election.Election && m.To < 5
	}
	w.crash(4, true)
	w.tell(1, election.Input{Kind: election.Campaign})
	w.cut = before
	if asked.Term != 61 {
		w.t.Fatalf("process 1 asked %v", asked)
	}
	return asked
}

// GRANTs to its former life arrive when the new life claims the same term. In
// Majority the members have taken them back by then.
func TestAGrantToAnOlderLifeDoesntCount(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w, roster := slow(t, mode)
		w.keep = func(m *election.Message) bool { return m.To == 5 && m.Kind == election.Grant }
		asked := elect61(w)
		for n := 0; len(w.kept) < 3 && n < 200; n++ {
			w.pass(1)
		}
		w.keep = nil
		w.cut = func(m *election.Message) bool { return between(m, 5) }
		w.crash(5, true)
		w.start(5, roster, nil)
		w.arrive(asked)
		if got := w.all[5].Status(); !got.Electing {
			t.Fatalf("the new life of process 5 claims nothing: %+v", got)
		}
		w.tell(3, election.Input{Kind: election.Campaign})
		w.pass(4) // so much do 3, 2 and 1 need
		for _, m := range w.kept {
			w.arrive(m)
		}
		w.pass(lease)
		w.tell(3, election.Input{Kind: election.Campaign})
		w.pass(2 * lease)
		w.wantHolder(3)
	})
}

// A process claims term 61, gives that up and ends. Its new life is granted the
// same term by a member that had not heard of the claim, and then the RESIGNED
// of the former life arrives.
func TestAGrantIsntReleasedByTheResignationOfAnOlderLife(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := settle(t, mode, 2, list(t, 1, 1, 2, 3), nil)
		w.all[2], w.all[3] = nil, nil
		w.pass(2 * lease)
		say := func(from election.ID, kind election.Kind, term election.Term, life uint32) {
			w.mail = nil
			w.step(1, election.Input{Kind: election.Receive, Message: election.Message{
				Kind: kind, From: from, To: 1, Term: term, Hold: election.Hold{Life: life, Sent: w.at, Version: 1},
			}})
		}
		granted := func() bool {
			for _, m := range w.mail {
				if m.Kind == election.Grant {
					return true
				}
			}
			return false
		}
		say(3, election.Beat, 61, 2)
		if !granted() {
			t.Fatal("the claim wasn't granted")
		}
		say(3, election.Resigned, 61, 1)
		if say(2, election.Beat, 62, 1); granted() {
			t.Error("another process was granted while the grant is in force")
		}
		if say(3, election.Beat, 61, 2); !granted() {
			t.Error("the new life doesn't get its grant renewed")
		}
		say(3, election.Resigned, 61, 2)
		if say(3, election.Beat, 61, 2); granted() {
			t.Error("a process was granted what it gave up")
		}
		if say(2, election.Beat, 62, 1); !granted() {
			t.Error("the resignation frees nothing")
		}
	})
}

// Word of the end of a former life comes late: what the present one was granted
// stays in force.
func TestTheEndOfAnOlderLifeFreesNothing(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		d := follower(t, mode, nil)
		d.pass(3 * lease)
		d.says(5, election.Beat, 30, election.Hold{Life: 2})
		d.answered(5, election.Grant)
		d.tell(me, election.Input{Kind: election.Ended, Peer: 5, Life: 1})
		d.says(4, election.Beat, 31, election.Hold{})
		d.answered(4, election.Deny)
	})
}

// A request that waits was made by a life that has ended since: the grant says
// whose it is.
func TestALateGrantNamesTheLifeThatAsked(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		d := follower(t, mode, nil)
		d.pass(3 * lease)
		d.says(4, election.Beat, 30, election.Hold{})
		d.answered(4, election.Grant)
		d.says(5, election.Beat, 31, election.Hold{Life: 1})
		d.answered(5, election.Deny)
		d.says(5, election.Probe, 0, election.Hold{Life: 2})
		d.kept = nil
		d.pass(2 * lease)
		for _, m := range d.kept {
			if m.Kind == election.Grant && m.To == 5 {
				if m.Hold.RequesterLife != 1 {
					t.Errorf("the GRANT is for life %d, which didn't ask", m.Hold.RequesterLife)
				}
				return
			}
		}
		t.Error("the request that waited was not granted")
	})
}
