// Package replay repeats recorded elections of real agents, and checks them. It compares the outputs of the machine
// byte for byte. A difference means that something other than the recorded inputs has influenced the machine.
package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/journal"
)

// Replay repeats the steps of a trace with a new machine.
type Replay struct {
	journal.TraceHeader

	path    string
	lines   *bufio.Reader
	close   func() error
	line    int
	machine *office.Machine
	// recorded is the next line, and next is what it contains.
	recorded []byte
	next     journal.TraceStep
}

// Open opens a trace.
func Open(path string) (*Replay, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Replay{path: path, lines: bufio.NewReader(file), close: file.Close}
	if err := r.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return r, nil
}

// Close closes the trace.
func (r *Replay) Close() error { return r.close() }

// start creates the machine.
func (r *Replay) start() error {
	first, err := r.readLine()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(first, &r.TraceHeader); err != nil {
		return err
	}
	algorithm, err := catalog.Find(r.Algorithm)
	if err != nil {
		return err
	}
	config := r.Office.Config
	config.NewElection = algorithm.New
	if config.Roster, err = toRoster(r.Office.Roster); err != nil {
		return err
	}
	r.machine, err = office.New(config)
	return err
}

// readLine returns the next line. A line that the recorder didn't complete, because its
// process was killed, counts as missing.
func (r *Replay) readLine() ([]byte, error) {
	line, err := r.lines.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	r.line++
	return line, nil
}

// peek reads the next step, unless it is read already. At the end it returns io.EOF.
func (r *Replay) peek() error {
	if r.recorded != nil {
		return nil
	}
	line, err := r.readLine()
	if err != nil {
		return err
	}
	r.next = journal.TraceStep{}
	if err := json.Unmarshal(line, &r.next); err != nil {
		return r.errorf("%w", err)
	}
	r.recorded = line
	if r.next.Names != nil {
		r.Names = r.next.Names
	}
	return nil
}

// at returns the moment of the next step, which was read.
func (r *Replay) at() time.Duration { return r.Origin + time.Duration(r.next.Now) }

// Step repeats the next step, and compares its output. At the end it returns io.EOF.
func (r *Replay) Step() error {
	if err := r.peek(); err != nil {
		return err
	}
	in, err := toInput(&r.next)
	if err != nil {
		return r.errorf("%w", err)
	}
	var out election.Output
	if r.next.Settings != nil {
		err = r.machine.Reconfigure(*r.next.Settings, in.Now)
	} else {
		r.machine.Step(in, &out)
	}
	if err != nil {
		return r.errorf("%w", err)
	}
	r.next.Send, r.next.Events = out.Send, out.Events
	r.next.Status, r.next.Deadline = r.machine.Status(), r.machine.Deadline()
	repeated, err := json.Marshal(&r.next)
	if err != nil {
		return r.errorf("%w", err)
	}
	recorded := bytes.TrimSuffix(r.recorded, []byte("\n"))
	r.recorded = nil
	if !bytes.Equal(repeated, recorded) {
		return r.errorf("the replay differs:\nrecorded %s\nrepeated %s", recorded, repeated)
	}
	return nil
}

func (r *Replay) errorf(format string, arguments ...any) error {
	return fmt.Errorf("%s:%d: %w", r.path, r.line, fmt.Errorf(format, arguments...))
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
