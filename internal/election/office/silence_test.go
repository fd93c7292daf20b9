package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// silences are faults with at most one lapse, although processes fall silent more than once, or end.
var silences = map[string]func(*delayed){
	"the others hear 5 once more before it lapses": func(d *delayed) {
		d.run(d.now + 91)
		d.paused[5] = true
		d.in(370, func() { d.paused[5] = false })
		d.run(d.now + 5000)
		d.step(5, election.Input{Kind: election.StepDown})
	},
	"a link stalls twice": func(d *delayed) {
		for range 2 {
			d.drop = func(m *election.Message) bool { return m.From == 5 && m.To == 4 }
			d.run(d.now + 600)
			d.drop = nil
			d.run(d.now + 5000)
		}
		d.step(5, election.Input{Kind: election.StepDown})
	},
	"two crashes that are proven after the suspicion": func(d *delayed) {
		for _, id := range []election.ID{5, 4} {
			life := d.incarnations[id]
			d.stop(id, false)
			d.run(d.now + 420)
			for other := election.ID(1); other < id; other++ {
				d.step(other, election.Input{Kind: election.Ended, Peer: id, Life: life})
			}
			d.run(d.now + 5000)
		}
	},
}

// TestSilenceIsNoLapse: after these faults, 5 restarts, and gets the office back at once.
func TestSilenceIsNoLapse(t *testing.T) {
	for name, fault := range silences {
		t.Run(name, func(t *testing.T) {
			inGrantModes(t, func(t *testing.T, mode office.Mode) {
				d := newDelayed(t, mode, 5, 10, preempting)
				d.runUntilHolder(5)
				d.run(d.now + minute)
				fault(d)
				d.stop(5, false)
				d.run(d.now + 4000)
				d.start(5, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
				d.step(5, election.Input{Kind: election.Recover})
				if took := d.runUntilHolder(5); took > 2000 {
					t.Errorf("5 got the office back after %d, want it at once", took)
				}
			})
		})
	}
}
