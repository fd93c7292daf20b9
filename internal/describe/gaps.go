package describe

import (
	"fmt"
	"math"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Gaps describes for how long a group had no coordinator in the last 30 days, and the longest of these
// gaps. It returns "" before the first election.
func Gaps(g *v1.ElectionGroup, now time.Time) (total string, longest []string) {
	gaps := g.Status.Gaps
	if gaps == nil {
		return "", nil
	}
	since, period := now.AddDate(0, 0, -v1.GapDays), fmt.Sprintf("the last %d days", v1.GapDays)
	if gaps.Since.After(since) {
		since, period = gaps.Since.Time, "the "+age(gaps.Since.Time, now)+" since the first election"
	}
	count, without := 0, time.Duration(0)
	for _, day := range gaps.Days {
		if day.Date >= since.UTC().Format(time.DateOnly) {
			count, without = count+int(day.Count), without+time.Duration(day.Micros)*time.Microsecond
		}
	}
	if h := g.Status.History; g.Status.Coordinator == nil && len(h) > 0 && h[0].Until != nil {
		count, without = count+1, without+max(0, now.Sub(h[0].Until.Time))
	}
	for i := range gaps.Longest {
		gap := &gaps.Longest[i]
		if gap.Until.Time.Before(since) {
			continue
		}
		text := fmt.Sprintf("%s until %s", v1.FormatGap(time.Duration(gap.Micros)*time.Microsecond),
			gap.Until.UTC().Format("2006-01-02 15:04:05 MST"))
		if end := (&v1.Tenure{Pod: gap.Pod, EndReason: gap.EndReason}).DescribeEnd(); end != "" {
			text += ", after " + end
		}
		longest = append(longest, text)
	}
	if count == 0 {
		return "With a coordinator for 100 % of " + period, nil
	}
	gapsText := fmt.Sprintf("%d gaps, %s in all", count, v1.FormatGap(without))
	if count == 1 {
		gapsText = "1 gap of " + v1.FormatGap(without)
	}
	return fmt.Sprintf("With a coordinator for %s of %s: %s", percent(without, now.Sub(since)), period, gapsText), longest
}

// percent formats the rest of a period with two digits that aren't 9, rounded down: 99.9987 %.
func percent(without, period time.Duration) string {
	if period <= 0 || without >= period {
		return "0 %"
	}
	lost := 100 * float64(without) / float64(period)
	digits := 1
	if lost > 0 {
		digits = min(9, max(1, int(math.Ceil(-math.Log10(lost)))+1)) //nolint:mnd // nanoseconds
	}
	scale := math.Pow10(digits)
	return fmt.Sprintf("%.*f %%", digits, math.Floor((100-lost)*scale)/scale)
}
