package ringallids_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/electiontest/script"
)

// forwarder is a machine that violates rule 2: it forwards a received
// identifier before it sends its own.
type forwarder struct{ election.Machine }

func forwardFirst(m election.Machine) election.Machine { return forwarder{m} }

func (m forwarder) Step(in election.Input, out *election.Output) {
	before := len(out.Send)
	m.Machine.Step(in, out)
	if sent := out.Send[before:]; len(sent) == 2 && sent[1].Kind == election.ElectMe {
		sent[0], sent[1] = sent[1], sent[0]
	}
}

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			group := script.New(script.Mutations{"forward-first": forwardFirst})
			datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
				command := []string{d.Cmd}
				for _, arg := range d.CmdArgs {
					command = append(command, arg.String())
				}
				return group.Run(strings.Join(command, " ") + "\n" + d.Input)
			})
		})
	}
}
