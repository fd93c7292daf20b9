package ringchampion_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/electiontest/fuzz"
	"github.com/conclave-dev/conclave/internal/election/ringchampion"
)

func FuzzMachine(f *testing.F) {
	for _, seed := range fuzz.Seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		makes := func(c election.Config, _ election.Tick) (election.Machine, error) { return ringchampion.New(c) }
		if err := fuzz.Run(data, makes); err != nil {
			t.Fatal(err)
		}
	})
}
