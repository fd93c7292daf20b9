package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// failInTurn makes the applications of processes fail twice each, so that these processes flap.
func (d *delayed) failInTurn(ids ...election.ID) {
	for range 2 {
		for _, id := range ids {
			d.runUntilHolder(id)
			d.step(id, election.Input{Kind: election.BecomeIneligible})
			d.run(d.now + 300)
		}
		for _, id := range ids {
			d.step(id, election.Input{Kind: election.BecomeEligible})
		}
	}
	d.run(d.now + 2000)
}

// lapse makes the GRANTs to the holder ever slower until its tenure ends, and returns how long it takes until there is another one.
func (d *delayed) lapse(id election.ID) (vacant election.Tick) {
	from := d.now
	d.drop = func(m *election.Message) bool {
		late := m.Kind == election.Grant && m.To == id
		if late {
			d.mail = append(d.mail, delayedMessage{d.now + (d.now-from)*6/10, *m})
		}
		return late
	}
	for len(d.holders()) > 0 && d.now < from+minute {
		d.run(d.now + 1)
	}
	d.drop = nil
	began := d.now
	for len(d.holders()) == 0 && d.now < began+minute {
		d.run(d.now + 1)
	}
	return d.now - began
}

// TestProcessThatFlapsAwaitsItsTurnOnly: a process that flaps loses its tenure, and an election of others elects it, because they don't
// know that it flaps, or flap, too. It doesn't wait for longer than others need to claim the office.
func TestProcessThatFlapsAwaitsItsTurnOnly(t *testing.T) {
	for _, test := range []struct {
		name        string
		flap        []election.ID
		restart     bool
		least, most election.Tick // the usual time is 75
	}{
		{"others that have restarted", []election.ID{3}, true, 75 + 50, 75 + 250},
		{"all flap", []election.ID{3, 2, 1}, false, 0, 75 + 50},
	} {
		t.Run(test.name, func(t *testing.T) {
			inGrantModes(t, func(t *testing.T, mode office.Mode) {
				for offset := election.Tick(0); offset < 100; offset += 10 {
					d := newDelayed(t, mode, 3, 5, preempting)
					d.failInTurn(test.flap...)
					for id := election.ID(1); id < 3 && test.restart; id++ {
						d.stop(id, true)
						d.run(d.now + 300)
						d.start(id, newRoster(t, 1, 1, 2, 3), nil)
						d.run(d.now + 3000)
					}
					d.runUntilHolder(3)
					d.run(d.now + 2000 + offset)
					if took := d.lapse(3); took < test.least || took > test.most {
						t.Fatalf("offset %d: got no coordinator for %d ms, want at least %d and at most %d", offset, took, test.least, test.most)
					}
				}
			})
		})
	}
}
