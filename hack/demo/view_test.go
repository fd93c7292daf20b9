package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/conclave-dev/conclave/internal/testing/golden"
)

func exampleView(t *testing.T) view {
	t.Helper()
	now := time.Unix(1000, 0)
	g := statusWithLeader(t, "p-2", 279477629)
	g.Processes[0].Status, g.Processes[0].Reason = "Crashed", "PodPending"
	g.Processes[3].Reason = "PodPending"
	return view{
		status: g, now: now,
		nodes:    map[string]string{"p-3": "node-3", "p-2": "node-2", "p-1": "node-1", "p-0": "node-3", ledgerPod: "node-4"},
		locks:    locks{Granted: 1204, Tenures: 3, grown: now, read: now},
		fault:    "killed the agent of p-3",
		failover: failover{"p-2", 4100 * time.Microsecond, 27 * time.Millisecond}.String(),
	}
}

// The live view fits into the terminal and matches testdata. Colors are shown as [1], as in the terminal's escape sequences.
func TestViewFitsTerminal(t *testing.T) {
	electing := exampleView(t)
	electing.status.Coordinator, electing.fault, electing.failover, electing.locks = nil, "", "", locks{}
	isolated := exampleView(t)
	isolated.isolated = "node-3"
	stalled, silent, violated := exampleView(t), exampleView(t), exampleView(t)
	stalled.locks.grown = stalled.now.Add(-3 * time.Second)
	silent.locks.read = silent.now.Add(-4 * time.Second)
	silent.isolated = "node-4"
	violated.locks.Violation = "line 7: duplicate: p-2 wrote lock/a 4 with right 7.1 after 4"
	for name, tc := range map[string]struct {
		view          view
		columns, rows int
	}{
		"wide":     {exampleView(t), 120, 24},
		"narrow":   {exampleView(t), 40, 24},
		"low":      {exampleView(t), 100, 6},
		"tiny":     {exampleView(t), 3, 1},
		"electing": {electing, 100, 24},
		"isolated": {isolated, 100, 24},
		"stalled":  {stalled, 80, 24},
		"silent":   {silent, 80, 24},
		"violated": {violated, 100, 24},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			lines := tc.view.lines(tc.columns, tc.rows)
			if len(lines) > tc.rows {
				t.Errorf("got %d lines, want at most %d", len(lines), tc.rows)
			}
			for _, l := range lines {
				if n := utf8.RuneCountInString(l.text); n > tc.columns {
					t.Errorf("got %d columns, want at most %d: %q", n, tc.columns, l.text)
				}
				if l.style != plain {
					got.WriteString("[" + string(l.style) + "]")
				}
				got.WriteString(l.text + "\n")
			}
			golden.Compare(t, filepath.Join("testdata", "view-"+name+".txt"), got.String())
		})
	}
}
