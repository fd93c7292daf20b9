package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

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
