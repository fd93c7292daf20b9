package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// columns names the columns of the table of a group, or of another leader. Durations are median, p99 and maximum.
func (r *Result) columns() []string {
	switch {
	case r.ObservedMillis > 0 && r.Leader == "":
		return []string{"FAULT", "COUNT", "ELECTED", "STATUS", "SERVICE"}
	case r.ObservedMillis > 0:
		return []string{"FAULT", "COUNT", "ELECTED", "TWO LEADERS"}
	case r.Leader != "":
		return []string{"FAULT", "COUNT", "ELECTED", "SETTLED", "FLAPS", "TWO LEADERS"}
	}
	return []string{"FAULT", "COUNT", "ELECTED", "KNOWN BY ALL", "STATUS", "SERVICE", "SETTLED"}
}

const legend = "Milliseconds from the fault: median / p99 / maximum."

func (r *Result) cells(s *Summary) []string {
	count := strconv.Itoa(s.Count)
	if s.Refused > 0 {
		count += fmt.Sprintf(" (+%d refused)", s.Refused)
	}
	if r.Leader != "" {
		two := "-"
		if d := s.TwoLeaders; d != nil {
			two = fmt.Sprintf("%d of %d, %s or longer", d.Count, s.Count, number(d.Max)+" ms")
		}
		if r.ObservedMillis > 0 {
			return []string{s.Kind, count, s.Elected.String(), two}
		}
		return []string{s.Kind, count, s.Elected.String(), s.Settled.String(), strconv.Itoa(s.Flaps), two}
	}
	if r.ObservedMillis > 0 {
		return []string{s.Kind, count, s.Elected.String(), s.Status.String(), s.Service.String()}
	}
	return []string{
		s.Kind, count, s.Elected.String(), s.Known.String(), s.Status.String(), s.Service.String(), s.Settled.String(),
	}
}

func (d *Distribution) String() string {
	if d == nil {
		return "-"
	}
	return number(d.Median) + " / " + number(d.P99) + " / " + number(d.Max)
}

// number has three significant digits or more.
func number(millis float64) string {
	decimals := 0
	switch {
	case millis < 10:
		decimals = 2
	case millis < 100:
		decimals = 1
	}
	return strconv.FormatFloat(millis, 'f', decimals, 64)
}

// about returns what was tested.
func (r *Result) about() (title string, details []string) {
	title, details = r.Namespace+"/"+r.Group, []string{r.Algorithm, r.Safety, plural(r.Members, "member")}
	if r.Leader != "" {
		title, details = r.Namespace+", "+r.Leader, []string{plural(r.Members, "candidate") + " with " + r.Candidates}
	}
	if r.ObservedMillis == 0 {
		details = append(details, fmt.Sprint("seed ", r.Seed))
	}
	return title, details
}

func (r *Result) legend() string {
	switch {
	case r.ObservedMillis > 0 && r.Leader == "":
		return "Milliseconds from the last answer of a coordinator: median / p99 / maximum."
	case r.ObservedMillis > 0:
		return "ELECTED: milliseconds from the last sign of a leader to the next one: median / p99 / maximum.\n" + r.Evidence
	case r.Leader == "":
		return legend
	}
	return legend + " Flaps are changes of the leader after the first one.\n" + r.Evidence
}

// WriteTable writes the result for a terminal.
func (r *Result) WriteTable(w io.Writer) error {
	title, details := r.about()
	fmt.Fprintf(w, "%s: %s\n\n", title, strings.Join(details, "; "))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(r.columns(), "\t"))
	for i := range r.Summary {
		fmt.Fprintln(table, strings.Join(r.cells(&r.Summary[i]), "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n\n%s\n", r.legend(), r.Verdict())
	for _, v := range r.Violations {
		fmt.Fprintf(w, "- %s\n", v)
	}
	return nil
}

func (v Violation) String() string {
	if v.Fault == 0 {
		return v.Problem.String()
	}
	return fmt.Sprintf("fault %d (%s): %s", v.Fault, v.Kind, v.Problem)
}

// Verdict states in one line whether an invariant was violated.
func (r *Result) Verdict() string {
	faults := 0
	for i := range r.Summary {
		faults += r.Summary[i].Count
	}
	verdict := "no invariant was violated"
	switch n := len(r.Violations); {
	case n > 0:
		verdict = plural(n, "violation") + " of invariants"
	case faults == 0 && r.ObservedMillis == 0:
		verdict = "nothing was tested"
	}
	counted := plural(faults, "fault")
	if r.ObservedMillis > 0 {
		counted = fmt.Sprintf("%s of the leader in %s", plural(faults, "change"),
			time.Duration(r.ObservedMillis)*time.Millisecond)
	}
	if r.Interrupted {
		verdict += " before the run was interrupted"
	}
	return counted + ": " + verdict
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// WriteMarkdown writes the result as a section of a Markdown document.
func (r *Result) WriteMarkdown(w io.Writer) error {
	title, details := r.about()
	fmt.Fprintf(w, "### %s\n\n%s. %s.\n\n", title, strings.Join(details, ", "), r.Verdict())
	r.writeMarkdownTable(w)
	for _, v := range r.Violations {
		fmt.Fprintf(w, "- %s\n", v)
	}
	if len(r.Violations) > 0 {
		fmt.Fprintln(w)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.NotPossible)) {
		fmt.Fprintf(w, "- `%s` was not possible: %s\n", kind, r.NotPossible[kind])
	}
	return nil
}

// MarkdownTable writes the measurements of each kind of fault of groups.
func MarkdownTable(w io.Writer, summaries []Summary) {
	(&Result{Summary: summaries}).writeMarkdownTable(w)
}

func (r *Result) writeMarkdownTable(w io.Writer) {
	header := r.columns()
	fmt.Fprintf(w, "%s\n\n| %s |\n|%s\n", r.legend(), strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	for i := range r.Summary {
		fmt.Fprintf(w, "| %s |\n", strings.Join(r.cells(&r.Summary[i]), " | "))
	}
	fmt.Fprintln(w)
}
