// Package replay repeats recorded elections of real agents. It compares the outputs of the machine byte for byte. A
// difference means that something other than the recorded inputs has influenced the machine. Package tracecheck checks
// whether the outputs follow the model.
package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/testing/tracecheck"
)

// Check repeats traces, and returns the number of steps.
func Check(paths ...string) (steps int, err error) {
	for _, path := range paths {
		var machine *office.Machine
		err := tracecheck.Lines(path, func(line []byte) (err error) {
			if machine == nil {
				machine, err = start(line)
				return err
			}
			steps++
			return repeat(machine, line)
		})
		if err != nil {
			return steps, err
		}
	}
	return steps, nil
}

// start returns the machine that a header describes.
func start(line []byte) (*office.Machine, error) {
	var h journal.TraceHeader
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, err
	}
	algorithm, err := catalog.Find(h.Algorithm)
	if err != nil {
		return nil, err
	}
	config := h.Office.Config
	config.NewElection = algorithm.New
	if config.Roster, err = toRoster(h.Office.Roster); err != nil {
		return nil, err
	}
	return office.New(config)
}

// repeat repeats a step, and compares its output.
func repeat(machine *office.Machine, recorded []byte) error {
	var step journal.TraceStep
	if err := json.Unmarshal(recorded, &step); err != nil {
		return err
	}
	in, err := toInput(&step)
	if err != nil {
		return err
	}
	var out election.Output
	if step.Settings != nil {
		err = machine.Reconfigure(*step.Settings, in.Now)
	} else {
		machine.Step(in, &out)
	}
	if err != nil {
		return err
	}
	step.Send, step.Events, step.Status, step.Deadline = out.Send, out.Events, machine.Status(), machine.Deadline()
	repeated, err := json.Marshal(&step)
	if err == nil && !bytes.Equal(repeated, recorded) {
		err = fmt.Errorf("the replay differs:\nrecorded %s\nrepeated %s", recorded, repeated)
	}
	return err
}

func toRoster(r *journal.TraceRoster) (*election.Roster, error) {
	if r == nil {
		return nil, nil //nolint:nilnil // Most inputs have no roster.
	}
	list, err := election.NewRoster(r.Version, r.Ring)
	if err != nil || r.Previous == nil {
		return list, err
	}
	previous, err := toRoster(r.Previous)
	if err != nil {
		return nil, err
	}
	return list.Succeed(previous, r.Departed...), nil
}

// toInput returns the input of a step.
func toInput(s *journal.TraceStep) (election.Input, error) {
	in := s.Input
	in.Message.List = slices.Clone(in.Message.List) // The machine owns it.
	list, err := toRoster(s.Roster)
	in.Roster = list
	return in, err
}
