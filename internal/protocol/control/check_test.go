package control_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
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

// TestCausesAreText, of which a newer agent may have others.
func TestCausesAreText(t *testing.T) {
	for cause := control.EndNone; cause <= control.EndUnknown; cause++ {
		text, err := json.Marshal(control.Ending{Cause: cause})
		must.Succeed(t, err)
		var read control.Ending
		must.Succeed(t, json.Unmarshal(text, &read))
		expect.Equalf(t, read.Cause, cause, "cause in %s", text)
	}
	var read control.Ending
	must.Succeed(t, json.Unmarshal([]byte(`{"cause":"eclipse"}`), &read))
	expect.Equalf(t, read.Cause, control.EndUnknown, "cause of a newer agent")
}
