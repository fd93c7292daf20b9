package control_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestCheckReport(t *testing.T) {
	late := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600)) // year 10000 in UTC
	text := strings.Repeat("x", 254)
	const tooLong = "each text of a report must have at most 253 bytes, got 254"
	const tooLongReason = "the reason why a member is ineligible must have at most 128 bytes, got 129"
	const tooLate = "each time of a report must be in the years 1 to 9999, got 10000"
	for name, test := range map[string]struct {
		report control.Report
		want   string
	}{
		"empty": {control.Report{}, ""},
		"the longest names": {control.Report{
			Coordinator: text[:253], ElectedAt: time.Now(), Ended: &control.Ending{Coordinator: text[:253]},
			Processes: []control.Row{{Name: text[:253]}},
		}, ""},
		"UID":              {control.Report{UID: text}, tooLong},
		"digest":           {control.Report{Digest: text}, tooLong},
		"coordinator":      {control.Report{Coordinator: text}, tooLong},
		"last coordinator": {control.Report{Ended: &control.Ending{Coordinator: text}}, tooLong},
		"cause":            {control.Report{Ended: &control.Ending{Cause: control.EndCause(text)}}, tooLong},
		"name in a row":    {control.Report{Processes: []control.Row{{Name: text}}}, tooLong},
		"status in a row":  {control.Report{Processes: []control.Row{{Status: text}}}, tooLong},
		"elected too late": {control.Report{ElectedAt: late}, tooLate},
		"elected too early": {control.Report{ElectedAt: time.Date(0, 1, 1, 0, 0, 0, 0,
			time.FixedZone("", 3600))}, "each time of a report must be in the years 1 to 9999, got -1"},
		"ineligible too late": {control.Report{IneligibleSince: late}, tooLate},
		"the longest reason":  {control.Report{Ineligible: text[:128]}, ""},
		"a longer reason":     {control.Report{Ineligible: text[:129]}, tooLongReason},
		"changed too late":    {control.Report{ChangedAt: late}, tooLate},
		"ended too late":      {control.Report{Ended: &control.Ending{At: late}}, tooLate},
		"too many members": {
			control.Report{Processes: make([]control.Row, 101)}, "report must have at most 100 rows, got 101",
		},
		"a hundred members": {control.Report{Processes: make([]control.Row, 100)}, ""},
	} {
		got := ""
		if err := test.report.Check(); err != nil {
			got = err.Error()
		}
		expect.Equalf(t, got, test.want, "%s", name)
	}
}

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

// TestNextFloorOfOperatorAndAgentsAgree: the operator computes the floor as the core does, without a floor, with one
// that clocks have passed, one that they will reach, and one that they never reach.
func TestNextFloorOfOperatorAndAgentsAgree(t *testing.T) {
	noon := time.Date(2026, time.November, 17, 12, 0, 0, 0, time.UTC)
	for _, now := range []time.Time{time.Unix(0, 0), time.Date(2026, time.January, 1, 0, 0, 20, 0, time.UTC), noon} {
		reading := control.EpochAt(now)
		floors := []int64{0, 1, 749, 750, 1500, 1501, control.MaxTerm - 1, control.MaxTerm}
		for ahead := int64(-5000); ahead < 5000; ahead++ {
			floors = append(floors, max(0, (reading+ahead)<<4+ahead&15))
		}
		for _, floor := range floors {
			want := int64(election.NextFloor(election.Term(floor), election.Epoch(reading)))
			if got := control.NextFloor(floor, now); got != want {
				t.Fatalf("clock at %d, floor %d: got next floor %d, want %d as in the core", reading, floor, got, want)
			}
		}
	}
}

// TestTokensAreExactInJSONNumbers: JavaScript and many readers of JSON round numbers above 2^53.
func TestTokensAreExactInJSONNumbers(t *testing.T) {
	newYear := time.Date(2069, time.January, 1, 0, 0, 0, 0, time.UTC)
	if token := election.TokenOf(election.Term(control.TermAt(newYear)), election.MaxPriority); token >= 1<<53 {
		t.Errorf("got token %d in 2069, want one below 2^53", token)
	}
}
