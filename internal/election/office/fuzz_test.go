package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/electiontest/fuzz"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// fuzzMachine fuzzes an office of the mode. The first bytes determine the inner election and the configuration.
func fuzzMachine(f *testing.F, mode office.Mode) {
	for i, seed := range fuzz.Seeds()[:90] {
		f.Add(byte(i), byte(i/6), seed)
	}
	f.Fuzz(func(t *testing.T, inside, options byte, data []byte) {
		algorithms := catalog.All()
		err := fuzz.Run(data, func(c election.Config, start election.Tick) (election.Machine, error) {
			oc := office.Config{
				Config: c, NewElection: algorithms[int(inside)%len(algorithms)].New, Mode: mode,
				Lease: 50, Heartbeat: 10, SuspicionTimeout: 25, Stagger: 3, StablePeriod: 20, DrainTimeout: 7,
				Policy: office.Policy(options % 3), Life: 1, MemoryLost: options&4 != 0, Start: start,
			}
			if options&8 != 0 {
				oc.Identity, oc.Forgotten = 1, c.Term+1
				oc.Reserved = oc.Forgotten + election.Block
			}
			return office.New(oc)
		})
		must.Succeed(t, err)
	})
}

func FuzzAvailable(f *testing.F) { fuzzMachine(f, office.Available) }

func FuzzMajority(f *testing.F) { fuzzMachine(f, office.Majority) }

func FuzzStrict(f *testing.F) { fuzzMachine(f, office.Strict) }
