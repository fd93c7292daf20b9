package chaos

import (
	"fmt"
	"slices"
	"time"
)

// CheckAnswers finds two responses that contradict each other: a coordinator with a lower token than an earlier one, or
// two coordinators with the same token. A process with the same token in two responses was coordinator in between, so
// this also finds two coordinators at the same time.
func CheckAnswers(leading []Answer) *Problem {
	bySent := slices.SortedFunc(slices.Values(leading), func(a, b Answer) int { return a.Sent.Compare(b.Sent) })
	byReceived := slices.SortedFunc(slices.Values(leading),
		func(a, b Answer) int { return a.Received.Compare(b.Received) })
	holders := map[uint64]Answer{}
	var highest Answer
	for _, current := range bySent {
		for len(byReceived) > 0 && byReceived[0].Received.Before(current.Sent) {
			if byReceived[0].Token > highest.Token {
				highest = byReceived[0]
			}
			byReceived = byReceived[1:]
		}
		if current.Token < highest.Token {
			return new(problem(OneCoordinator, "coordinator with a lower token than before: %s; before: %s", current, highest))
		}
		if other, ok := holders[current.Token]; ok && other.From != current.From {
			return new(problem(OneCoordinator, "two coordinators with the same token: %s; %s", other, current))
		}
		holders[current.Token] = current
	}
	return nil
}

func (a Answer) String() string {
	return fmt.Sprintf("%s (UID %s) led with token %d between %s and %s", a.From.Pod, a.From.UID, a.Token,
		clock(a.Sent), clock(a.Received))
}

func clock(t time.Time) string { return t.Format("15:04:05.000000") }

// HighestToken returns the response with the highest token. Prepend it to later responses before CheckAnswers.
func HighestToken(leading []Answer) []Answer {
	var highest []Answer
	for _, a := range leading {
		if len(highest) == 0 || a.Token > highest[0].Token {
			highest = []Answer{a}
		}
	}
	return highest
}

// CheckTerms finds an agent that reported a coordinator in a lower term than before, and a status with a lower term.
func CheckTerms(changes []Change, statuses []Status) *Problem {
	last := map[Agent]Change{}
	for _, c := range changes {
		if c.Coordinator == "" {
			continue
		}
		if before := last[c.From]; c.Term < before.Term {
			return new(problem(Growing, "the agent of %s reported term %d of %s after term %d of %s", c.From.Pod, c.Term,
				c.Coordinator, before.Term, before.Coordinator))
		}
		last[c.From] = c
	}
	var before Status
	for _, s := range statuses {
		if s.Term < before.Term {
			return new(problem(Growing, "the status showed term %d after term %d", s.Term, before.Term))
		}
		before = s
	}
	return nil
}

// Problems returns the contradictions to the invariants that hold at every instant. In Available mode, each side of a
// partition may have a coordinator, in any term.
func (r *Record) Problems(available bool) (all []Problem) {
	if r.ByClaims {
		for _, o := range Overlaps(r.Claims) {
			if !r.ByObjects {
				all = append(all, Problem{OneLeader, o.String()})
			}
		}
		return all
	}
	changes := r.Changes
	if available {
		changes = nil
	} else if p := CheckAnswers(r.Answers); p != nil {
		all = append(all, *p)
	}
	if p := CheckTerms(changes, r.Statuses); p != nil {
		all = append(all, *p)
	}
	return all
}
