package control_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/protocol/control"
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
