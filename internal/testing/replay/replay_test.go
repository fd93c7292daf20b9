package replay

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/tracecheck"
)

var traces = flag.String("traces", "", "pattern of the traces of a group, for TestGivenTraces")

// TestGivenTraces checks traces of real agents.
func TestGivenTraces(t *testing.T) {
	if *traces == "" {
		t.Skip("there is no flag -traces")
	}
	paths, err := filepath.Glob(*traces)
	if err != nil || len(paths) == 0 {
		t.Fatalf("got %d traces %s and error %v", len(paths), *traces, err)
	}
	_, err = Check(paths...)
	must.Succeed(t, err)
	steps, tenures, err := tracecheck.Files(paths...)
	must.Succeed(t, err)
	t.Logf("%d steps, %d tenures", steps, tenures)
}

const heartbeat election.Tick = 20

// record runs a group of one process, which acquires the office as soon as its lease has passed, and returns its trace.
func record(t *testing.T, inputs ...election.Input) string {
	t.Helper()
	algorithm, err := catalog.Find("Bully")
	must.Succeed(t, err)
	list, err := election.NewRoster(2, []election.Member{{ID: 1, Priority: 10}})
	must.Succeed(t, err)
	config := office.Config{
		Config:      election.Config{Self: 1, Roster: list, Timing: election.DefaultTiming(1, 0)},
		NewElection: algorithm.New, Mode: office.Majority, Lease: 5 * heartbeat, Heartbeat: heartbeat,
		SuspicionTimeout: 2 * heartbeat, Life: 1, MemoryLost: true, Start: 100,
		Forgotten: election.FirstTerm(2) + 1, Reserved: election.FirstTerm(2) + election.Block,
	}
	folder, names := t.TempDir(), []string{"", "a"}
	recorder, err := journal.CreateTrace(folder, journal.TraceHeader{
		Group: "ledger", Agent: "a", Algorithm: "Bully", Origin: time.Hour, Names: names,
	}, config)
	must.Succeed(t, err)
	defer recorder.Close()
	machine, err := office.New(config)
	must.Succeed(t, err)
	step := func(in election.Input) {
		var out election.Output
		machine.Step(in, &out)
		r := journal.Record{
			Input: in, Send: out.Send, Events: out.Events, Status: machine.Status(), Deadline: machine.Deadline(),
		}
		must.Succeed(t, recorder.Step(&r, names))
	}
	for machine.Deadline() < 1000 {
		now := machine.Deadline()
		for len(inputs) > 0 && inputs[0].Now <= now {
			step(inputs[0])
			inputs = inputs[1:]
		}
		step(election.Input{Kind: election.TimePassed, Now: now})
	}
	paths, err := filepath.Glob(filepath.Join(folder, "ledger.a.*.jsonl"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("got traces %v and error %v, want one", paths, err)
	}
	return paths[0]
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	text := must.ReadFile(t, path)
	return strings.SplitAfter(string(text), "\n")
}

func writeLines(t *testing.T, lines []string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "changed.jsonl")
	must.Succeed(t, os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600))
	return path
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	expect.ErrorContainsf(t, err, text, "error")
}

func TestReplayRepeatsAllSteps(t *testing.T) {
	path := record(t)
	steps, err := Check(path)
	// the header, and nothing after the last line
	if want := len(readLines(t, path)) - 2; err != nil || steps != want {
		t.Errorf("got %d steps and error %v, want %d and none", steps, err, want)
	}
	if checked, tenures, err := tracecheck.Files(path); err != nil || checked != steps || tenures != 1 {
		t.Errorf("model: got %d steps, %d tenures and error %v, want %d, 1 and none", checked, tenures, err, steps)
	}
}

// TestReplayDetectsHiddenInput removes the line of an input.
func TestReplayDetectsHiddenInput(t *testing.T) {
	path := record(t, election.Input{Kind: election.BecomeIneligible, Now: 500})
	lines := readLines(t, path)
	at := slices.IndexFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, `{"kind":`+string(encoded(json.Marshal(election.BecomeIneligible)))+",")
	})
	if at < 0 {
		t.Fatal("the input wasn't recorded")
	}
	_, err := Check(writeLines(t, slices.Delete(lines, at, at+1)))
	wantError(t, err, "the replay differs")
}

func encoded(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

func TestReplayDetectsChangedOutput(t *testing.T) {
	lines := readLines(t, record(t))
	changed := writeLines(t, append(slices.Clone(lines[:len(lines)-2]),
		strings.Replace(lines[len(lines)-2], "}\n", `,"events":[{"kind":5}]}`+"\n", 1)))
	_, err := Check(changed)
	wantError(t, err, "the replay differs")
}

// TestIncompleteLineIsIgnored: the process was killed while it wrote a line.
func TestIncompleteLineIsIgnored(t *testing.T) {
	lines := readLines(t, record(t))
	lines = append(lines, `{"kind":1,"no`)
	steps, err := Check(writeLines(t, lines))
	if want := len(lines) - 3; err != nil || steps != want {
		t.Errorf("got %d steps and error %v, want %d and none", steps, err, want)
	}
}

// TestEveryFieldIsRecorded: an input, an output or a configuration with arbitrary values
// in all fields survives encoding.
func TestEveryFieldIsRecorded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var in election.Input
		fill(r, reflect.ValueOf(&in).Elem())
		var out election.Output
		fill(r, reflect.ValueOf(&out).Elem())
		previous, err := election.NewRoster(1, []election.Member{{ID: 3, Priority: 7, Identity: 1<<64 - 1}})
		must.Succeed(t, err)
		list, err := election.NewRoster(2, []election.Member{{ID: 1, Priority: 2}, {ID: 4, Priority: 1}})
		must.Succeed(t, err)
		in.Roster = list.Succeed(previous, 3)
		recorded := journal.NewTraceStep(&journal.Record{Input: in, Send: out.Send, Events: out.Events})
		var read journal.TraceStep
		must.Succeed(t, json.Unmarshal(encoded(json.Marshal(&recorded)), &read))
		got, err := toInput(&read)
		if err != nil || !reflect.DeepEqual(got, in) {
			t.Fatalf("got input\n%+v\nand error %v, want\n%+v", got, err, in)
		}
		if !reflect.DeepEqual(read.Send, recorded.Send) || !reflect.DeepEqual(read.Events, recorded.Events) {
			t.Fatalf("got output\n%+v %+v\nwant\n%+v", read.Send, read.Events, out)
		}
		var c office.Config
		fill(r, reflect.ValueOf(&c).Elem())
		first := journal.TraceHeader{Office: journal.TraceSettings{Config: c}}
		var again journal.TraceHeader
		must.Succeed(t, json.Unmarshal(encoded(json.Marshal(&first)), &again))
		if configured := again.Office.Config; !reflect.DeepEqual(configured, c) {
			t.Fatalf("got configuration\n%+v\nwant\n%+v", configured, c)
		}
	}
}

// fill sets all fields to arbitrary values other than 0, except for functions and rosters.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(r, field)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Pointer:
		if v.Type() != reflect.TypeFor[*election.Roster]() {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + r.Int64())
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + r.Uint64N(100))
	case reflect.Func:
	default:
		panic("cannot fill a " + v.Type().String())
	}
}
