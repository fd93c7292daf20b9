package catalog_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/electiontest/fuzz"
	"github.com/conclave-dev/conclave/internal/election/electiontest/script"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestScripts runs the scripts in the testdata of each algorithm: see package script. With
// -rewrite, it replaces the outputs in them.
func TestScripts(t *testing.T) {
	for _, algorithm := range catalog.All() {
		files, err := filepath.Glob(filepath.Join(scripts(algorithm), "*.txt"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no scripts of %s: %v", algorithm.Name, err)
		}
		for _, file := range files {
			t.Run(algorithm.Name+"/"+filepath.Base(file), func(t *testing.T) { runScript(t, file) })
		}
	}
}

// scripts returns the folder with the scripts of an algorithm. The elections on a ring are one package.
func scripts(algorithm catalog.Algorithm) string {
	name := strings.ToLower(algorithm.Name)
	if algorithm.Ring {
		return filepath.Join("..", "ring", "testdata", strings.TrimPrefix(name, "ring"))
	}
	return filepath.Join("..", name, "testdata")
}

func runScript(t *testing.T, file string) {
	t.Helper()
	group := script.New(
		script.Mutations{"forward-first": func(m election.Machine) election.Machine { return forwarder{m} }})
	datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
		command := []string{d.Cmd}
		for _, arg := range d.CmdArgs {
			command = append(command, arg.String())
		}
		return group.Run(strings.Join(command, " ") + "\n" + d.Input)
	})
}

// forwarder is a machine that violates rule 2 of two rings: it forwards a received identifier before it sends its own.
type forwarder struct{ election.Machine }

func (m forwarder) Step(in election.Input, out *election.Output) {
	before := len(out.Send)
	m.Machine.Step(in, out)
	if sent := out.Send[before:]; len(sent) == 2 && (sent[1].Kind == election.ElectMe || sent[1].Kind == election.Elect) {
		sent[0], sent[1] = sent[1], sent[0]
	}
}

// The fuzz tests have one algorithm each, because go test -fuzz runs one of them at a time.

func FuzzBully(f *testing.F)          { fuzzMachine(f, "Bully") }
func FuzzStatusTable(f *testing.F)    { fuzzMachine(f, "StatusTable") }
func FuzzRingAllIDs(f *testing.F)     { fuzzMachine(f, "RingAllIDs") }
func FuzzRingChampion(f *testing.F)   { fuzzMachine(f, "RingChampion") }
func FuzzRingActiveList(f *testing.F) { fuzzMachine(f, "RingActiveList") }
func FuzzRingSkip(f *testing.F)       { fuzzMachine(f, "RingSkip") }

// fuzzMachine checks the properties that package fuzz lists.
func fuzzMachine(f *testing.F, name string) {
	f.Helper()
	algorithm, err := catalog.Find(name)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range fuzz.Seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		makes := func(c election.Config, _ election.Tick) (election.Machine, error) { return algorithm.New(c) }
		must.Succeed(t, fuzz.Run(data, makes))
	})
}
