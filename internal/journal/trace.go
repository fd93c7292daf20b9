package journal

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// maxTrace is the size in bytes after which a recorder stops.
const maxTrace = 64 << 20

// TraceHeader is the first line of a trace. A trace is a file of JSON lines, and each further line has one step. Only
// the version of the program that wrote a trace can replay it: another version may behave differently.
type TraceHeader struct {
	Group     string `json:"group"`
	Agent     string `json:"agent"`
	Algorithm string `json:"algorithm"`
	// Origin is the moment of tick 0, on a clock that all processes of the machine share.
	Origin time.Duration `json:"origin"`
	// Names are the names of the processes by ID.
	Names  []string      `json:"names"`
	Office TraceSettings `json:"office"`
}

// TraceSettings is office.Config. Its own fields hide those with their names, which JSON can't have.
type TraceSettings struct {
	office.Config

	Roster *TraceRoster
	// NewElection follows from the algorithm, and OnTransition is only for tests.
	NewElection, OnTransition *struct{} `json:",omitempty"`
}

// TraceRoster is election.Roster.
type TraceRoster struct {
	Version  uint32            `json:"version"`
	Ring     []election.Member `json:"ring"`
	Previous *TraceRoster      `json:"previous,omitempty"`
	Departed []election.ID     `json:"departed,omitempty"`
}

func newTraceRoster(r *election.Roster) *TraceRoster {
	if r == nil {
		return nil
	}
	previous := newTraceRoster(r.Previous)
	return &TraceRoster{Version: r.Version, Ring: r.Ring(), Previous: previous, Departed: r.Departed}
}

// TraceStep is a line of a trace: the record of a step.
type TraceStep struct {
	Record

	Roster *TraceRoster `json:"roster,omitempty"`
	// Names are the names of the processes by ID, if there are new ones.
	Names []string `json:"names,omitempty"`
}

// NewTraceStep returns the line of a record.
func NewTraceStep(r *Record) TraceStep {
	return TraceStep{Record: *r, Roster: newTraceRoster(r.Roster)}
}

// Recorder writes the trace of one machine. It writes each step at once, so that the
// trace is complete even if the process is killed.
type Recorder struct {
	file  *os.File
	size  int
	names int // how many were written
}

// CreateTrace creates a trace GROUP.AGENT.NUMBER.jsonl in a folder, for a machine with this configuration.
func CreateTrace(folder string, header TraceHeader, c office.Config) (*Recorder, error) {
	file, err := os.CreateTemp(folder, header.Group+"."+header.Agent+".*.jsonl")
	if err != nil {
		return nil, fmt.Errorf("cannot create a trace: %w", err)
	}
	header.Office = TraceSettings{Config: c, Roster: newTraceRoster(c.Roster)}
	r := &Recorder{file: file, names: len(header.Names)}
	return r, r.write(header)
}

// Step writes the record of a step. It stops at the first error, and when the trace has reached its maximum size.
func (r *Recorder) Step(record *Record, names []string) error {
	if r == nil || r.file == nil {
		return nil
	}
	step := NewTraceStep(record)
	if len(names) > r.names {
		step.Names, r.names = names, len(names)
	}
	return r.write(&step)
}

func (r *Recorder) write(line any) error {
	encoded, err := json.Marshal(line)
	if err == nil {
		_, err = r.file.Write(append(encoded, '\n'))
	}
	r.size += len(encoded) + 1
	if err != nil || r.size >= maxTrace {
		r.Close()
	}
	if err != nil {
		return fmt.Errorf("cannot write a trace: %w", err)
	}
	return nil
}

// Close ends the trace.
func (r *Recorder) Close() {
	if r != nil && r.file != nil {
		_ = r.file.Close() // Everything is written already.
		r.file = nil
	}
}
