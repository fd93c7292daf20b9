package groupstatus

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

const (
	// maxLongest is the number of gaps that are retained with their causes.
	maxLongest = 3
	// maxCount is the most gaps that a day can have in the schema.
	maxCount = 1_000_000
)

// countGap returns the counts with the gap before the newest tenure, which has just begun. Days and gaps
// older than v1.GapDays are forgotten.
func countGap(before *v1.Gaps, history []v1.Tenure) *v1.Gaps {
	tenure := &history[0]
	if before == nil {
		before = &v1.Gaps{Since: metav1.NewTime(tenure.From.Truncate(time.Second))} // as in the API server
	}
	next := new(*before)
	next.Days, next.Longest = nil, nil
	oldest := tenure.From.AddDate(0, 0, -v1.GapDays)
	for _, day := range before.Days {
		if day.Date > oldest.UTC().Format(time.DateOnly) {
			next.Days = append(next.Days, day)
		}
	}
	for _, gap := range before.Longest {
		if gap.Until.After(oldest) {
			next.Longest = append(next.Longest, gap)
		}
	}
	if length, known := tenure.Gap(); known && len(history) > 1 {
		addGap(next, tenure, &history[1], length)
	}
	return next
}

// addGap adds the gap between two tenures.
func addGap(gaps *v1.Gaps, tenure, before *v1.Tenure, length time.Duration) {
	gap := v1.Gap{Until: tenure.From, Micros: length.Microseconds(), Pod: before.Pod, EndReason: before.EndReason}
	count, micros := &gaps.Others, &gaps.OtherMicros
	if before.EndedByFailure() {
		count, micros = &gaps.Failures, &gaps.FailureMicros
	}
	*count, *micros = *count+1, min(*micros+gap.Micros, maxGap.Microseconds())
	gaps.Longest = append(gaps.Longest, gap)
	slices.SortStableFunc(gaps.Longest, func(a, b v1.Gap) int { return cmp.Compare(b.Micros, a.Micros) })
	gaps.Longest = gaps.Longest[:min(len(gaps.Longest), maxLongest)]

	day := v1.GapDay{Date: tenure.From.UTC().Format(time.DateOnly)}
	if at := slices.IndexFunc(gaps.Days, func(d v1.GapDay) bool { return d.Date == day.Date }); at >= 0 {
		day = gaps.Days[at]
		gaps.Days = slices.Delete(gaps.Days, at, at+1)
	}
	day.Count = min(day.Count+1, maxCount)
	day.Micros = min(day.Micros+gap.Micros, maxGap.Microseconds())
	gaps.Days = append(gaps.Days, day)
	// The clock of an agent may be wrong, so the newest tenure need not be on the newest day.
	slices.SortFunc(gaps.Days, func(a, b v1.GapDay) int { return cmp.Compare(b.Date, a.Date) })
	gaps.Days = gaps.Days[:min(len(gaps.Days), v1.GapDays+1)]
}
