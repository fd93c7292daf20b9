package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

// contradiction finds two answers that can't both be true: that of somebody who led after a higher token was given out, or
// two processes with one token. Whoever led at two moments did so in between; so two that led at the same time, as far as
// the answers can tell, contradict each other.
func contradiction(led []answer) string {
	begun := slices.SortedFunc(slices.Values(led), func(a, b answer) int { return a.sent.Compare(b.sent) })
	ended := slices.SortedFunc(slices.Values(led), func(a, b answer) int { return a.received.Compare(b.received) })
	holders := map[uint64]answer{}
	var highest answer
	for _, late := range begun {
		for len(ended) > 0 && ended[0].received.Before(late.sent) {
			if ended[0].Token > highest.Token {
				highest = ended[0]
			}
			ended = ended[1:]
		}
		if late.Token < highest.Token {
			return fmt.Sprintf("%s led after a higher token was out: %s", show(late), show(highest))
		}
		if other, ok := holders[late.Token]; ok && other.from != late.from {
			return fmt.Sprintf("two led with one token: %s, %s", show(other), show(late))
		}
		holders[late.Token] = late
	}
	return ""
}

// brokenPromise finds an agent that led before the time was over that another one had said remains. Only an agent that was
// killed may break its word.
func brokenPromise(led []answer) string {
	begun := slices.SortedFunc(slices.Values(led), func(a, b answer) int { return a.sent.Compare(b.sent) })
	ended := slices.SortedFunc(slices.Values(led), func(a, b answer) int { return a.received.Compare(b.received) })
	promises := map[process]answer{} // that end last
	for _, late := range begun {
		for len(ended) > 0 && ended[0].received.Before(late.sent) {
			if first := ended[0]; first.until().After(promises[first.from].until()) {
				promises[first.from] = first
			}
			ended = ended[1:]
		}
		for from, promise := range promises {
			if from != late.from && late.received.Before(promise.until()) {
				return fmt.Sprintf("%s had %dms left, when there led %s", show(promise), promise.RemainingMillis, show(late))
			}
		}
	}
	return ""
}

// until is the moment until which somebody who got this answer may act.
func (a answer) until() time.Time {
	return a.sent.Add(time.Duration(a.RemainingMillis) * time.Millisecond)
}

func show(a answer) string {
	return fmt.Sprintf("%s (process %d) with token %d, asked %s, answered %s later",
		a.from.Pod, a.from.PID, a.Token, a.sent.Format("15:04:05.000000"), a.received.Sub(a.sent))
}

// tenures are those that were seen, in order.
func tenures(led []answer) (lines []string) {
	led = slices.SortedStableFunc(slices.Values(led), func(a, b answer) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), a.received.Compare(b.received))
	})
	for i := 0; i < len(led); {
		j := i
		for j+1 < len(led) && led[j+1].Token == led[i].Token {
			j++
		}
		lines = append(lines, fmt.Sprintf("%s led with token %d from %s to %s, in %d answers", led[i].from.Pod, led[i].Token,
			led[i].received.Format("15:04:05.000"), led[j].received.Format("15:04:05.000"), j+1-i))
		i = j + 1
	}
	return lines
}

func TestContradictionsAreFound(t *testing.T) {
	start := time.Now()
	a, b := process{PID: 1, Pod: "a"}, process{PID: 2, Pod: "b"}
	said := func(from process, token uint64, sent, received time.Duration) answer {
		return answer{from: from, sent: start.Add(sent), received: start.Add(received), leader: leader{Leading: true, Token: token}}
	}
	for name, c := range map[string]struct {
		led  []answer
		want bool
	}{
		"nobody":                   {nil, false},
		"one after the other":      {[]answer{said(a, 5, 0, 1), said(a, 5, 2, 3), said(b, 7, 4, 5)}, false},
		"an answer that took long": {[]answer{said(a, 5, 0, 9), said(b, 7, 4, 5)}, false},
		"in between":               {[]answer{said(a, 5, 0, 1), said(b, 7, 4, 5), said(a, 5, 6, 7)}, true},
		"a token that falls":       {[]answer{said(a, 7, 0, 1), said(b, 5, 4, 5)}, true},
		"one token, two processes": {[]answer{said(a, 7, 0, 1), said(b, 7, 0, 1)}, true},
	} {
		if got := contradiction(c.led); (got != "") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestBrokenPromisesAreFound(t *testing.T) {
	start := time.Now()
	said := func(pid int, remaining, sent, received int64) answer {
		moment := func(millis int64) time.Time { return start.Add(time.Duration(millis) * time.Millisecond) }
		return answer{
			from: process{PID: pid}, sent: moment(sent), received: moment(received),
			leader: leader{Leading: true, RemainingMillis: remaining},
		}
	}
	for name, c := range map[string]struct {
		led  []answer
		want bool
	}{
		"its own successor":        {[]answer{said(1, 100, 0, 1), said(1, 100, 10, 11)}, false},
		"in time":                  {[]answer{said(1, 100, 0, 1), said(2, 100, 100, 101)}, false},
		"an answer that took long": {[]answer{said(1, 100, 0, 1), said(2, 100, 90, 110)}, false},
		"too early":                {[]answer{said(1, 100, 0, 1), said(2, 100, 90, 95)}, true},
		"a later, shorter promise": {[]answer{said(1, 100, 0, 1), said(1, 10, 5, 6), said(2, 100, 90, 95)}, true},
	} {
		if got := brokenPromise(c.led); (got != "") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
