package chaos

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Budget is a limit of a result. Beyond it, the run fails.
type Budget struct {
	text, statistic, measure string
	// limit is in milliseconds, or a count.
	limit float64
}

var budgetSyntax = regexp.MustCompile(
	`^\s*(?:(median|p99|max)\((elected|known|status|service|settled)\)|(two-leaders|flaps|violations))\s*>\s*(\S+)\s*$`)

// ParseBudget parses a budget such as p99(elected) > 2s, or two-leaders > 0.
func ParseBudget(text string) (b Budget, err error) {
	parts := budgetSyntax.FindStringSubmatch(text)
	if parts == nil {
		return b, fmt.Errorf(
			"must be such as 'p99(elected) > 2s', with median, p99 or max of elected, known, status, service or settled, "+
				"or such as 'two-leaders > 0', with two-leaders, flaps or violations, got %q", text)
	}
	b = Budget{text: text, statistic: parts[1], measure: parts[2] + parts[3]}
	if b.statistic == "" {
		count, err := strconv.ParseUint(parts[4], 10, 31)
		if err != nil {
			return b, fmt.Errorf("%s must have a whole number as its limit, got %q", b.measure, parts[4])
		}
		b.limit = float64(count)
		return b, nil
	}
	limit, err := time.ParseDuration(parts[4])
	if err != nil || limit < 0 {
		return b, fmt.Errorf("%s(%s) must have a duration such as 2s as its limit, got %q", b.statistic, b.measure, parts[4])
	}
	b.limit = *millis(&limit)
	return b, nil
}

// NotMeasured returns why what the budget limits isn't measured for a group, or for another leader, or if faults are
// only observed, or "".
func (b *Budget) NotMeasured(ofGroup, seesTwo, observes bool) string {
	switch {
	case observes && slices.Contains([]string{"flaps", "settled", "known"}, b.measure):
		return b.measure + " isn't measured with --observe"
	case ofGroup && b.measure == "flaps", !ofGroup && slices.Contains([]string{"known", "status", "service"}, b.measure):
		return b.measure + " isn't measured here"
	case b.measure == "two-leaders" && !seesTwo:
		return "a Lease can't show two leaders: ask the processes, by --leader http://PORT/PATH or exec:COMMAND"
	}
	return ""
}

// Exceeded returns by what a result exceeds the budget, or "".
func (b *Budget) Exceeded(r *Result) string {
	if b.statistic == "" {
		if count := b.count(r); float64(count) > b.limit {
			return fmt.Sprintf("%s: got %d", b.text, count)
		}
		return ""
	}
	var values []*float64
	for i := range r.Faults {
		f := &r.Faults[i]
		values = append(values, map[string]*float64{
			"elected": f.Elected, "known": f.Known, "status": f.Status, "service": f.Service, "settled": f.Settled,
		}[b.measure])
	}
	d := distribution(values)
	if d == nil { // A test that measures nothing must not pass.
		return b.text + ": nothing was measured"
	}
	got := map[string]float64{"median": d.Median, "p99": d.P99, "max": d.Max}[b.statistic]
	if got <= b.limit {
		return ""
	}
	return fmt.Sprintf("%s: got %s ms", b.text, number(got))
}

// count returns a number of violations, of flaps, or of faults with two leaders.
func (b *Budget) count(r *Result) (count int) {
	switch b.measure {
	case "violations":
		return len(r.Violations)
	case "flaps":
		for i := range r.Faults {
			count += r.Faults[i].Flaps
		}
		return count
	}
	faults := map[int]bool{}
	for _, v := range r.Violations {
		if v.Invariant == OneCoordinator || v.Invariant == OneLeader {
			faults[v.Fault] = true
		}
	}
	for i := range r.Faults {
		if r.Faults[i].TwoLeaders != nil {
			faults[r.Faults[i].Number] = true
		}
	}
	return len(faults)
}
