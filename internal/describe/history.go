package describe

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// ordinalOfElection returns the number of the present tenure, as in " (the 14th election)", or
// "" if the operator does not count them.
func ordinalOfElection(g *v1.ElectionGroup) string {
	c := g.Status.Coordinator
	if len(g.Status.History) == 0 || c == nil || g.Status.History[0].Pod != c.Pod || g.Status.History[0].Term != c.Term {
		return ""
	}
	return fmt.Sprintf(" (the %s election)", Ordinal(g.Status.History[0].Number))
}

// Ordinal formats a number, as in 1st, 2nd, 3rd, 4th, 11th and 101st.
func Ordinal(n int64) string {
	const ten = 10
	suffix := "th"
	if n/ten%ten != 1 {
		switch n % ten {
		case 1:
			suffix = "st"
		case 2: //nolint:mnd // second
			suffix = "nd"
		case 3: //nolint:mnd // third
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}

// history writes the last tenures.
func history(w io.Writer, tenures []v1.Tenure, now time.Time) {
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "TENURE\tCOORDINATOR\tTERM\tBEGAN (UTC)\tLASTED\tGAP BEFORE\tEND")
	for i := range tenures {
		t := &tenures[i]
		fmt.Fprintf(columns, "%d\t%s\t%d\t%s\t%s\t%s\t%s\n",
			t.Number, t.Pod, t.Term, began(t.From.Time, now), lasted(t, now), GapBefore(t), end(t))
	}
	flushColumns(w, columns, &text)
}

// began formats a time as people know it from an alert, and its age.
func began(at, now time.Time) string {
	at, layout := at.UTC(), "Jan _2 15:04:05"
	if at.Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		layout = time.TimeOnly
	}
	return fmt.Sprintf("%s, %s ago", at.Format(layout), age(at, now))
}

// end formats why a tenure ended, and who requested it.
func end(t *v1.Tenure) string {
	if t.EndedBy != "" {
		return fmt.Sprintf("%s (%s)", t.EndReason, t.EndedBy)
	}
	return string(t.EndReason)
}

// lasted formats how long a tenure has lasted.
func lasted(t *v1.Tenure, now time.Time) string {
	if t.Until == nil {
		return age(t.From.Time, now) + " so far"
	}
	return age(t.From.Time, t.Until.Time)
}

// GapBefore formats the time without a coordinator before a tenure, or "" if it is not known.
func GapBefore(t *v1.Tenure) string {
	gap, known := t.Gap()
	if !known {
		return ""
	}
	return v1.FormatGap(gap)
}
