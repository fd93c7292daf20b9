package control_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestWithoutUsualRows(t *testing.T) {
	rows := []control.Row{
		{Name: "d", Status: "Coordinator", Connected: true},
		{Name: "c", Status: "Normal", Connected: true},
		{Name: "b", Status: "Normal"},
		{Name: "a", Status: "Crashed"},
	}
	all := control.Report{Group: "ledger", Processes: slices.Clone(rows)}
	got := all.WithoutUsualRows()
	if !got.OnlyUnusual || !slices.Equal(got.Processes, rows[2:]) || got.Group != "ledger" {
		t.Errorf("got %+v, want the rows of b and a", got)
	}
	if all.OnlyUnusual || !slices.Equal(all.Processes, rows) {
		t.Errorf("got %+v, want the report itself unchanged", all)
	}
}

// BenchmarkRound measures what an operator receives when all members of a group report that
// one of them has crashed and another one leads: the bytes, and the memory that it retains.
func BenchmarkRound(b *testing.B) {
	for _, members := range []int{5, 100, 300} {
		for _, onlyUnusual := range []bool{false, true} {
			b.Run(fmt.Sprintf("members=%d/onlyUnusual=%t", members, onlyUnusual), func(b *testing.B) {
				var bytes, retained int64
				for b.Loop() {
					bytes, retained = round(b, members, onlyUnusual)
				}
				b.ReportMetric(float64(bytes), "B/round")
				b.ReportMetric(float64(max(retained, 0)), "B-retained")
			})
		}
	}
}

func round(b *testing.B, members int, onlyUnusual bool) (bytes, retained int64) {
	b.Helper()
	var lines [][]byte
	for i := range members - 1 {
		report := control.Report{
			Group: "ledger", Pod: fmt.Sprint("ledger-", i), UID: "6f0c1f6e-6f0c-4f6e-8f0c-6f0c1f6e6f0c", Generation: 1, Revision: 1780000000000,
			Version: 1, Digest: "9f0c1f6e6f0c4f6e", Coordinator: fmt.Sprint("ledger-", members-2), Term: 279477629,
			ElectedAt: time.Now(), ChangedAt: time.Now(), Eligible: true,
			Ended: &control.Ending{Coordinator: fmt.Sprint("ledger-", members-1), Term: 279477628, Cause: control.EndCrash, At: time.Now(), GapMicros: new(int64(4000))},
		}
		for j := range slices.Backward(make([]int, members)) {
			row := control.Row{Name: fmt.Sprint("ledger-", j), Priority: uint32(j + 1), Status: "Normal", Connected: true}
			switch j {
			case members - 1:
				row.Status, row.Connected = "Crashed", false
			case members - 2:
				row.Status = "Coordinator"
			}
			report.Processes = append(report.Processes, row)
		}
		if onlyUnusual {
			report = report.WithoutUsualRows()
		}
		line, err := json.Marshal(report)
		must.Succeed(b, err)
		lines = append(lines, line)
		bytes += int64(len(line))
	}
	before := heap()
	reports := make([]control.Report, len(lines))
	for i, line := range lines {
		must.Succeed(b, json.Unmarshal(line, &reports[i]))
	}
	retained = heap() - before
	runtime.KeepAlive(reports)
	runtime.KeepAlive(lines)
	return bytes, retained
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
