package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/chaos"
)

// findContradiction finds two responses that contradict each other, as chaos tests do. It returns a description, or "" if there
// is none.
func findContradiction(leading []response) string {
	var answers []chaos.Answer
	for _, r := range leading {
		answers = append(answers, chaos.Answer{
			From: chaos.Agent{Pod: r.from.Pod, UID: strconv.Itoa(r.from.PID)}, Sent: r.sent, Received: r.received, Term: r.Term, Token: r.Token,
		})
	}
	if found := chaos.CheckAnswers(answers); found != nil {
		return found.Detail
	}
	return ""
}

// findLeaseViolation finds an agent that was coordinator before the lease of another one had ended. This is permitted only if
// the other agent was killed. It returns a description, or "" if there is none.
func findLeaseViolation(leading []response) string {
	bySent := slices.SortedFunc(slices.Values(leading), func(a, b response) int { return a.sent.Compare(b.sent) })
	byReceived := slices.SortedFunc(slices.Values(leading), func(a, b response) int { return a.received.Compare(b.received) })
	latest := map[process]response{} // the response of each process whose lease ends last
	for _, current := range bySent {
		for len(byReceived) > 0 && byReceived[0].received.Before(current.sent) {
			if first := byReceived[0]; first.leaseEnd().After(latest[first.from].leaseEnd()) {
				latest[first.from] = first
			}
			byReceived = byReceived[1:]
		}
		for from, other := range latest {
			if from != current.from && current.received.Before(other.leaseEnd()) {
				return fmt.Sprintf("%s had a lease for another %dms, but %s", format(other), other.RemainingMillis, format(current))
			}
		}
	}
	return ""
}

// leaseEnd is the time until which an application that received this response may act.
func (a response) leaseEnd() time.Time {
	return a.sent.Add(time.Duration(a.RemainingMillis) * time.Millisecond)
}

func format(a response) string {
	return fmt.Sprintf("%s (process %d) was coordinator with token %d (query %s, response %s later)",
		a.from.Pod, a.from.PID, a.Token, a.sent.Format("15:04:05.000000"), a.received.Sub(a.sent))
}

// describeTenures lists the observed tenures in order.
func describeTenures(leading []response) (lines []string) {
	leading = slices.SortedStableFunc(slices.Values(leading), func(a, b response) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), a.received.Compare(b.received))
	})
	for i := 0; i < len(leading); {
		j := i
		for j+1 < len(leading) && leading[j+1].Token == leading[i].Token {
			j++
		}
		lines = append(lines, fmt.Sprintf("%s with token %d from %s to %s (%d responses)", leading[i].from.Pod, leading[i].Token,
			leading[i].received.Format("15:04:05.000"), leading[j].received.Format("15:04:05.000"), j+1-i))
		i = j + 1
	}
	return lines
}

func TestFindLeaseViolation(t *testing.T) {
	start := time.Now()
	respond := func(pid int, remaining, sent, received int64) response {
		moment := func(millis int64) time.Time { return start.Add(time.Duration(millis) * time.Millisecond) }
		return response{
			from: process{PID: pid}, sent: moment(sent), received: moment(received),
			leader: leader{Leading: true, RemainingMillis: remaining},
		}
	}
	for name, c := range map[string]struct {
		leading []response
		want    bool
	}{
		"same coordinator":                      {[]response{respond(1, 100, 0, 1), respond(1, 100, 10, 11)}, false},
		"after the lease":                       {[]response{respond(1, 100, 0, 1), respond(2, 100, 100, 101)}, false},
		"slow response":                         {[]response{respond(1, 100, 0, 1), respond(2, 100, 90, 110)}, false},
		"before the end of the lease":           {[]response{respond(1, 100, 0, 1), respond(2, 100, 90, 95)}, true},
		"a later response with a shorter lease": {[]response{respond(1, 100, 0, 1), respond(1, 10, 5, 6), respond(2, 100, 90, 95)}, true},
	} {
		if got := findLeaseViolation(c.leading); (got != "") != c.want {
			t.Errorf("%s: got %q, want one: %t", name, got, c.want)
		}
	}
}
