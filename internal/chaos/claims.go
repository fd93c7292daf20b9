package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Claim is the answer of a process whether it leads, or what an object says of it. It holds at some
// instant between Sent and Received.
type Claim struct {
	From           Agent
	Sent, Received time.Time
	Leading        bool
	// Instant isn't 0 if the claim was read together with all others of the same number: these hold at the same instant.
	Instant int
	// Detail is the answer in words.
	Detail string
}

// maxSilence is the longest time between two claims of a process to lead from which it follows that it led in between.
// A process that loses the lead and regains it within this time, and says nothing of that, breaks this assumption.
//
// Each of the two claims holds at some instant between Sent and Received. So the time from the first Sent to the last
// Received counts: a claim may hold long before it is received, and the next one long after it is sent.
const maxSilence = 500 * time.Millisecond

// maxAbsence is the longest silence after which a process still counts as the same leader, if it didn't
// deny that it leads. It may be longer than maxSilence, because no violation follows from it.
const maxAbsence = 5 * time.Second

// continuesTo reports whether a process led all the time between two of its claims.
func (c *Claim) continuesTo(next *Claim) bool {
	return c.Leading && next.Leading && next.Received.Sub(c.Sent) <= maxSilence
}

// Overlap has the times during which two processes led for certain: the first and the last of them, and their sum. If
// that is 0, there is an instant in between.
type Overlap struct {
	A, B        Agent
	From, Until time.Time
	Total       time.Duration
}

func (o *Overlap) String() string {
	text := fmt.Sprintf("%s and %s led at the same time, for %s or longer between %s and %s", o.A.Pod, o.B.Pod,
		o.Total.Round(time.Millisecond), clock(o.From), clock(o.Until))
	if o.A.Pod == o.B.Pod {
		text += fmt.Sprintf(" (UIDs %s and %s)", o.A.UID, o.B.UID)
	}
	return text
}

// span is a time during which a process led for certain. A single claim doesn't tell the instant, only that there is
// one in it.
type span struct {
	from, until time.Time
	single      bool
	instant     int
}

// Overlaps returns which processes led at the same time, for certain. A process leads for certain from the time at
// which a claim is received until its next one is sent, if both are within maxSilence. So a slow connection can hide an
// overlap, but can't invent one.
func Overlaps(claims []Claim) (all []Overlap) {
	spans := map[Agent][]span{}
	var agents []Agent
	last := map[Agent]Claim{}
	for _, c := range claims {
		before, known := last[c.From]
		if !known {
			agents = append(agents, c.From)
		}
		last[c.From] = c
		if !c.Leading {
			continue
		}
		spans[c.From] = append(spans[c.From], span{c.Sent, c.Received, true, c.Instant})
		if known && before.continuesTo(&c) && c.Sent.After(before.Received) {
			spans[c.From] = append(spans[c.From], span{from: before.Received, until: c.Sent})
		}
	}
	for i, a := range agents {
		for _, b := range agents[i+1:] {
			if o := overlapOf(spans[a], spans[b]); !o.Until.IsZero() {
				o.A, o.B = a, b
				all = append(all, o)
			}
		}
	}
	return all
}

// overlapOf returns the overlap of two processes.
func overlapOf(ofA, ofB []span) (overlap Overlap) {
	var all []span
	for _, x := range ofA {
		// Spans begin in the order of time, and last for seconds at most: a request has a timeout.
		for len(ofB) > 0 && ofB[0].until.Add(time.Minute).Before(x.from) {
			ofB = ofB[1:]
		}
		for _, y := range ofB {
			if y.from.After(x.until.Add(time.Minute)) {
				break
			}
			if from, until, ok := x.meets(y); ok {
				all = append(all, span{from: from, until: until})
			}
		}
	}
	slices.SortFunc(all, func(x, y span) int { return x.from.Compare(y.from) })
	for i, s := range all {
		if i == 0 {
			overlap.From, overlap.Until = s.from, s.from
		}
		if s.from.Before(overlap.Until) {
			s.from = overlap.Until
		}
		if s.until.After(overlap.Until) {
			overlap.Total += s.until.Sub(s.from)
			overlap.Until = s.until
		}
	}
	return overlap
}

// meets returns when both processes led for certain. The instant of a single claim must be in the span of the other
// process.
func (x span) meets(y span) (from, until time.Time, ok bool) {
	within := func(single, span span) bool { return !single.from.Before(span.from) && !single.until.After(span.until) }
	switch {
	case x.single && y.single:
		return x.until, x.until, x.instant != 0 && x.instant == y.instant
	case x.single:
		return x.until, x.until, within(x, y)
	case y.single:
		return y.until, y.until, within(y, x)
	}
	if from, until = x.from, x.until; y.from.After(from) {
		from = y.from
	}
	if y.until.Before(until) {
		until = y.until
	}
	return from, until, from.Before(until)
}

// Successions returns the claims with which the lead went to another process since the fault, or returned to one that
// had lost it.
func (r *Record) Successions() (all []Claim) {
	leads, last := r.Before, map[Agent]Claim{}
	for _, c := range r.Claims {
		before, known := last[c.From]
		last[c.From] = c
		switch {
		case !c.Leading:
			if c.From == leads {
				leads = Agent{}
			}
			continue
		case known && before.Leading && (c.From == leads || c.Sent.Sub(before.Received) <= maxAbsence):
			continue // Its tenure continues.
		case !known && c.From == leads:
			continue
		}
		leads = c.From
		if !c.Sent.Before(r.Fault) && (!r.Ousted || !r.Victims[c.From.UID]) {
			all = append(all, c)
		}
	}
	return all
}

// NextClaims returns the last claim of each process: what the next record begins with.
func (r *Record) NextClaims() (all []Claim) {
	for i, c := range r.Claims {
		if !slices.ContainsFunc(r.Claims[i+1:], func(later Claim) bool { return later.From == c.From }) {
			all = append(all, c)
		}
	}
	return all
}

// ledBy returns what is different from a state with one leader.
func (s *State) ledBy() (all []Problem) {
	var leaders, said []string
	for _, p := range s.Pods {
		switch {
		case p.Terminating:
		case p.Silence != "":
			all = append(all, problem(Agreement, "pod %s doesn't answer: %s", p.Pod, p.Silence))
		case p.Said == nil:
		case p.Said.Leading:
			leaders = append(leaders, p.Pod)
		case p.Said.Detail != "":
			said = append(said, p.Pod+": "+p.Said.Detail)
		}
	}
	switch {
	case len(leaders) > 1:
		all = append(all, problem(OneLeader, "%s lead", strings.Join(leaders, " and ")))
	case len(leaders) == 0 && len(said) > 0:
		all = append(all, problem(Recovery, "no pod leads (%s)", strings.Join(said, "; ")))
	case len(leaders) == 0:
		all = append(all, problem(Recovery, "no pod leads%s", s.Vacant))
	}
	return all
}
