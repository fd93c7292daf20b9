package group

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// traced returns the records in the only trace in a folder.
func traced(t *testing.T, folder string) (records []journal.TraceStep) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*"))
	must.Succeed(t, err)
	must.Equalf(t, len(paths), 1, "traces")
	for _, line := range bytes.Split(bytes.TrimSpace(must.ReadFile(t, paths[0])), []byte("\n"))[1:] {
		var step journal.TraceStep
		must.Succeed(t, json.Unmarshal(line, &step))
		records = append(records, step)
	}
	return records
}

// TestAllTellTheSameFailover: the trace has the records of the steps. The state for the application, the report, the
// metrics and the journal agree with it about who was coordinator in which term, why that ended, and for how long there
// was none.
func TestAllTellTheSameFailover(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		folder, metrics, reports := t.TempDir(), &Metrics{}, &reportLog{wake: make(chan struct{}, 1)}
		c := newTunedCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(cfg *Config) {
			if cfg.Self == "a" {
				cfg.TraceFolder, cfg.Metrics, cfg.OnReport = folder, metrics, reports.add
			}
		})
		c.mu.Lock()
		c.latency = time.Millisecond // So messages keep their order, and the vacancy has a length.
		c.mu.Unlock()
		c.awaitFollowers("c", "a", "b")
		vacant := metrics.Election.Nanos.Load()
		a, w := c.group("a"), c.group("a").Watch()
		must.Succeed(t, retryStepDown(testwait.Context(t), c.group("c").stepDownTo("b")))
		c.awaitFollowers("b", "a")
		testwait.Until(t, "a has reported it", func() bool { return reports.last().Coordinator == "b" })
		recorded, err := a.Journal(testwait.Context(t))
		must.Succeed(t, err)

		var lost, found *journal.TraceStep // the first steps after c, and with b
		steps := traced(t, folder)
		for i := range steps {
			coordinator := a.names.name(steps[i].Status.Coordinator)
			if coordinator == "c" {
				lost, found = nil, nil
			} else if lost == nil {
				lost = &steps[i]
			}
			if coordinator == "b" && found == nil {
				found = &steps[i]
			}
		}
		if lost == nil || found == nil {
			t.Fatalf("got a trace of %d steps, want the loss of c and the recognition of b", len(steps))
		}
		expect.Equalf(t, lost.Cause, control.EndStepDown, "cause in the trace")
		gap, term := time.Duration(found.Now-lost.Now), uint64(found.Status.Term)

		r := reports.last()
		expect.Equalf(t, r.Term, term, "term of the report")
		expect.Equalf(t, formatEnding(r.Ended), formatEnding(&control.Ending{
			Coordinator: "c", Term: uint64(lost.Message.Term), Cause: lost.Cause, GapMicros: new(gap.Microseconds()),
		}), "ending in the report")
		expect.Equalf(t, metrics.Elections[lost.Cause].Load(), 1, "elections with this cause in the metrics")
		expect.Equalf(t, metrics.Election.Nanos.Load()-vacant, gap.Nanoseconds(), "gap in the metrics")
		for change := (Leader{}); change.Coordinator != "b"; {
			change, err = w.Next(testwait.Context(t))
			must.Succeed(t, err)
			if change.Coordinator == "b" {
				expect.Equalf(t, change.Term, term, "term of the state for the application")
			}
		}
		step := func(is func(journal.Step) bool) journal.Step {
			i := slices.IndexFunc(recorded.Steps, is)
			if i < 0 {
				t.Fatalf("got journal %+v", recorded.Steps)
			}
			return recorded.Steps[i]
		}
		ended := step(func(s journal.Step) bool { return s.Cause == lost.Cause })
		begun := step(func(s journal.Step) bool {
			return slices.Contains(s.Events, journal.Event{Kind: election.Recognized.String(), Peer: "b", Term: term})
		})
		expect.Equalf(t, begun.At.Sub(ended.At), gap, "gap in the journal")
		expect.Equalf(t, ended.Message.Lamport, lost.Message.Lamport, "message in the journal")
	})
}
