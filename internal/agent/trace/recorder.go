package trace

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// maxSize is the size in bytes after which a recorder stops.
const maxSize = 64 << 20

// Recorder writes the trace of one machine. It writes each step at once, so that the
// trace is complete even if the process is killed.
type Recorder struct {
	file  *os.File
	size  int
	names int // how many were written
}

// Start describes the machine that is recorded.
type Start struct {
	Group, Agent, Algorithm string
	// Origin is the moment of tick 0, on a clock that all processes of the machine share.
	Origin time.Duration
	Config office.Config
}

// Create creates a trace GROUP.AGENT.NUMBER.jsonl in a folder. names are the names of the
// processes by ID.
func Create(folder string, start *Start, names []string) (*Recorder, error) {
	file, err := os.CreateTemp(folder, start.Group+"."+start.Agent+".*.jsonl")
	if err != nil {
		return nil, fmt.Errorf("cannot create a trace: %w", err)
	}
	r := &Recorder{file: file, names: len(names)}
	return r, r.write(Header{
		Group: start.Group, Agent: start.Agent, Algorithm: start.Algorithm, Origin: int64(start.Origin), Names: names,
		Office: Settings{Config: start.Config, Roster: newRoster(start.Config.Roster)},
	})
}

// Step writes a step that the machine has just done. It stops at the first error, and
// when the trace has reached its maximum size.
func (r *Recorder) Step(in *election.Input, out *election.Output, m election.Machine, names []string) error {
	if r.file == nil {
		return nil
	}
	s := NewStep(in, out, m)
	if len(names) > r.names {
		s.Names, r.names = names, len(names)
	}
	return r.write(&s)
}

// Reconfigure writes that the machine has just switched to other settings.
func (r *Recorder) Reconfigure(s office.Settings, now election.Tick, m election.Machine) error {
	if r.file == nil {
		return nil
	}
	line := NewStep(&election.Input{Now: now}, &election.Output{}, m)
	line.Settings = &s
	return r.write(&line)
}

func (r *Recorder) write(line any) error {
	encoded, err := json.Marshal(line)
	if err == nil {
		_, err = r.file.Write(append(encoded, '\n'))
	}
	r.size += len(encoded) + 1
	if err != nil || r.size >= maxSize {
		r.Close()
	}
	if err != nil {
		return fmt.Errorf("cannot write a trace: %w", err)
	}
	return nil
}

// Close ends the trace.
func (r *Recorder) Close() {
	if r.file != nil {
		_ = r.file.Close() // Everything is written already.
		r.file = nil
	}
}
