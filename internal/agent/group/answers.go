package group

import (
	"maps"
	"math/bits"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// answers measures how long members take to answer the heartbeats of this process while it is
// coordinator. An answer returns the moment at which the heartbeat was sent, so no clock of
// another machine matters. The time includes what both agents spend waiting for a CPU.
//
// It remembers five to ten minutes, in a fixed size for each member. It belongs to the goroutine of run.
type answers struct {
	metrics Metrics
	members map[election.ID]*answerTimes
}

// answerPeriod is how long a window of answerTimes lasts.
const answerPeriod = election.Tick(5 * time.Minute)

// observe measures a received answer.
//
// It ignores the first grant of a member in a term: the member may have deferred it, because it had granted another
// process before, or was waiting after a restart. Each later one renews a grant, and follows its heartbeat at once.
func (a *answers) observe(r *journal.Record, self election.ID, life uint32) {
	m := &r.Message
	took := r.Now - m.Hold.Sent
	if r.Kind != election.Receive || m.Kind != election.Grant || m.From == self ||
		m.Hold.RequesterLife != life || took < 0 {
		return
	}
	t := a.members[m.From]
	if t == nil {
		return
	}
	if t.term != m.Term || t.life != m.Hold.Life {
		t.term, t.life = m.Term, m.Hold.Life
		return
	}
	if t.add(took, r.Now) {
		a.metrics.Answered(time.Duration(took))
	}
}

// use switches to the members of a list.
func (a *answers) use(roster *election.Roster) {
	maps.DeleteFunc(a.members, func(id election.ID, _ *answerTimes) bool { return !roster.Has(id) })
	for _, m := range roster.Ring() {
		if a.members[m.ID] == nil {
			a.members[m.ID] = &answerTimes{}
		}
	}
}

func (a *answers) of(id election.ID, now election.Tick) *control.Answers {
	if t := a.members[id]; t != nil && t.windows != nil {
		return t.summary(now)
	}
	return nil
}

type answerTimes struct {
	// term and life are those of the last grant.
	term election.Term
	life uint32
	// sent and received are those of the last answer.
	sent, received election.Tick
	// period is the number of the current period. That and the one before have a window each.
	// They are allocated for the first renewal, so that an election allocates nothing.
	period  election.Tick
	windows *[2]answerWindow
}

type answerWindow struct {
	counts [answerBuckets]uint32
	// longest arrived at longestAt. second is the longest of the others.
	longest, longestAt, second election.Tick
}

// advance clears the windows of periods that are over.
func (t *answerTimes) advance(now election.Tick) {
	period := now / answerPeriod
	if period > t.period+1 {
		*t.windows = [2]answerWindow{}
	} else if period > t.period {
		t.windows[period%2] = answerWindow{}
	}
	t.period = max(t.period, period)
}

// add adds an answer, and reports whether it counts.
//
// For example, an agent that was paused for 4 s answers 40 heartbeats at once, after 4 s, 3.9 s and so on.
// Only the first of these measures something: the others waited for the same pause. Such an answer is to
// a heartbeat that was sent before the last answer arrived, and follows that one sooner than their
// heartbeats were sent. On a slow link, answers have the same distance as heartbeats.
func (t *answerTimes) add(took, now election.Tick) bool {
	sent := now - took
	queued := sent < t.received && now-t.received < (sent-t.sent)/2
	t.sent, t.received = sent, now
	if queued {
		return false
	}
	if t.windows == nil {
		t.windows = &[2]answerWindow{}
	}
	t.advance(now)
	w := &t.windows[t.period%2]
	w.counts[answerBucket(took)]++
	if took > w.longest {
		w.second, w.longest, w.longestAt = w.longest, took, now
	} else {
		w.second = max(w.second, took)
	}
	return true
}

func (t *answerTimes) summary(now election.Tick) *control.Answers {
	t.advance(now)
	var counts [answerBuckets]uint64
	var all control.Answers
	w, other := &t.windows[0], &t.windows[1]
	if other.longest > w.longest {
		w, other = other, w
	}
	longest := w.longest
	for i := range counts {
		counts[i] = uint64(t.windows[0].counts[i]) + uint64(t.windows[1].counts[i])
		all.Count += counts[i]
	}
	if all.Count == 0 {
		return nil
	}
	rank, p99 := all.Count-all.Count/100, longest
	for i, within := 0, uint64(0); i < answerBuckets-1; i++ {
		if within += counts[i]; within >= rank {
			p99 = min(answerBound(i), longest)
			break
		}
	}
	all.P99Micros, all.LongestMicros = time.Duration(p99).Microseconds(), time.Duration(longest).Microseconds()
	all.SecondMicros = time.Duration(max(w.second, other.longest)).Microseconds()
	all.LongestAt = time.Now().Add(-time.Duration(now - w.longestAt)).UTC().Truncate(time.Millisecond)
	return &all
}

// The buckets have a width of answerUnit up to eight units, and then a quarter of a power of
// two. The last one has everything from 32 s on.
const (
	answerUnit    = election.Tick(250 * time.Microsecond)
	answerBuckets = 8 + 4*14 + 1
)

func answerBucket(took election.Tick) int {
	units := uint64(took / answerUnit)
	if units < 8 {
		return int(units)
	}
	power := bits.Len64(units) - 1
	return min(8+4*(power-3)+int(units>>(power-2)&3), answerBuckets-1)
}

func answerBound(bucket int) election.Tick {
	if bucket < 8 {
		return election.Tick(bucket+1) * answerUnit
	}
	power, quarter := (bucket-8)/4+3, (bucket-8)%4
	return election.Tick(4+quarter+1) << (power - 2) * answerUnit
}
