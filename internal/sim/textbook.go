package sim

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// What a scenario may take, so that one that is too large ends with a word
// rather than with the machine's memory.
const (
	maxSteps    = 200_000_000
	maxInFlight = 10_000_000
	// maxRound is how many may go all the way round a ring.
	maxRound = 50_000_000
)

// validateCost refuses what is known to end with a word that there are too many
// messages, but only after minutes: where everyone's message goes all the way
// round the ring.
func (s *Scenario) validateCost() error {
	live := s.Processes - len(s.Crashed)
	cost := 0
	switch s.Algorithm {
	case "RingAllIDs":
		cost = live * s.Processes
	case "RingActiveList":
		if s.Recover == election.None || int(s.Recover) == s.Processes { // others only ask
			cost = live * live
		}
	}
	if s.Safety != "" {
		cost *= s.Processes / 20 // each looks at all others at each step
	}
	if cost > maxRound {
		return bad("%s with %d processes takes too many messages: choose fewer processes, or RingChampion or RingSkip", s.Algorithm, s.Processes)
	}
	return nil
}

// patientFor is how many heartbeats an office may stay vacant before it is said
// that nobody gets hold of it.
const patientFor = 600

func (t *textbook) run() error {
	limit := election.Never
	if t.wrapped() {
		limit = t.start + patientFor*t.heartbeat()
	}
	for range maxSteps {
		e, more := t.queue.pop()
		if !more || e.at > limit {
			return nil
		}
		t.happen(e)
		if t.queue.size > t.inFlightMax {
			return bad("more than %d messages are in flight at once: choose fewer processes", t.inFlightMax)
		}
		if t.wrapped() && t.flying == 0 && e.kind != wake && t.settled() {
			return nil
		}
	}
	return bad("the election isn't over after %d steps: choose fewer processes", maxSteps)
}

// settled reports whether the highest process alive holds the office and
// everyone alive knows it. A recovered one gets it by a handover, before which
// they agree on another.
func (t *textbook) settled() bool {
	if t.queue.now <= t.start {
		return false
	}
	coordinator, agreed := t.agreement()
	return agreed && coordinator == t.highest()
}

// highest is the highest process alive.
func (t *textbook) highest() election.ID {
	id := election.ID(t.scenario.Processes)
	for t.dead[id] {
		id--
	}
	return id
}

func (t *textbook) happen(e event) {
	switch e.kind {
	case deliver:
		t.arrive(e)
	case undelivered:
		m := t.slab.take(e.slot)
		t.step(election.Input{Kind: election.Undelivered, Message: m}, m.From)
	case wake:
		if t.machines[e.who] == nil || t.wakeAt[e.who] != e.at {
			return
		}
		t.wakeAt[e.who] = election.Never
		if t.machines[e.who].Deadline() <= e.at {
			t.step(election.Input{Kind: election.TimePassed}, e.who)
		} else {
			t.arm(e.who)
		}
	case call:
		t.call(e.who)
	default:
	}
}

func (t *textbook) arrive(e event) {
	m := t.slab.take(e.slot)
	if m.Kind.Counts() {
		t.flying--
	}
	if t.machines[m.To] == nil {
		if t.algorithm.Ring && m.Kind.Counts() {
			// The sender's wait ends: no sign of the message's arrival has come.
			t.queue.push(event{at: e.at + t.scenario.Latency, kind: undelivered, slot: t.slab.put(&m)})
		}
		return
	}
	t.step(election.Input{Kind: election.Receive, Message: m}, m.To)
}

// call makes a process start an election, or recover.
func (t *textbook) call(id election.ID) {
	in := election.Input{Kind: election.Campaign}
	switch {
	case t.wrapped() && id == t.scenario.Recover:
		in.Kind = election.TimePassed // it has been listening from the start
	case id == t.scenario.Recover:
		in.Kind = election.Recover
	case t.wrapped():
		in.Kind, in.Peer = election.Suspect, t.leader
	case t.lost:
		if t.machines[id].Status().Term > 1 {
			return // somebody above acted in time
		}
		in.Peer = t.leader
	}
	t.step(in, id)
}

// step lets a process take an input, and puts what it sends on its way.
func (t *textbook) step(in election.Input, id election.ID) {
	in.Now = t.queue.now
	t.out.Reset()
	before := t.machines[id].Status()
	t.machines[id].Step(in, &t.out)
	if t.scenario.Watch != nil {
		t.scenario.Watch(Step{At: in.Now, Process: id, Input: in, Output: &t.out})
	}
	for i := range t.out.Send {
		m := &t.out.Send[i]
		t.count(m)
		t.queue.push(event{at: in.Now + t.scenario.Latency, kind: deliver, slot: t.slab.put(m)})
	}
	after := t.machines[id].Status()
	if after.Coordinator != before.Coordinator || after.Term != before.Term || t.learned() {
		t.settledAt = in.Now
	}
	t.arm(id)
}

// learned reports whether the process has just learned of a coordinator. It may
// be the one that it knew before.
func (t *textbook) learned() bool {
	return slices.ContainsFunc(t.out.Events, func(e election.Event) bool {
		return e.Kind == election.Elected || e.Kind == election.Recognized
	})
}

// count counts a message, unless it goes to a successor that doesn't respond:
// such attempts are counted apart.
func (t *textbook) count(m *election.Message) {
	if !m.Kind.Counts() {
		return
	}
	t.flying++
	if t.algorithm.Ring && t.machines[m.To] == nil {
		t.skipped++
		return
	}
	t.counts[m.Kind]++
}

// arm sets the alarm for the process's deadline. An alarm that is set too early
// is set again when it goes off.
func (t *textbook) arm(id election.ID) {
	due := t.machines[id].Deadline()
	if due == election.Never || t.wakeAt[id] <= due {
		return
	}
	t.wakeAt[id] = max(due, t.queue.now)
	t.queue.push(event{at: t.wakeAt[id], kind: wake, who: id})
}

// agreement is whom the live processes name, the highest of several.
func (t *textbook) agreement() (election.ID, bool) {
	coordinator, agreed := election.None, true
	for id, m := range t.machines {
		if m == nil || t.dead[id] {
			continue
		}
		named := m.Status().Coordinator
		switch {
		case coordinator == election.None:
			coordinator = named
		case named != coordinator:
			agreed = false
			coordinator = max(coordinator, named)
		}
		if named == election.None {
			agreed = false
		}
	}
	up := int(coordinator) < len(t.machines) && t.machines[coordinator] != nil && !t.dead[coordinator]
	return coordinator, agreed && up
}

func (t *textbook) outcome() Outcome {
	o := Outcome{
		Algorithm: t.scenario.Algorithm, Processes: t.scenario.Processes,
		Messages: map[election.Kind]int{}, Skipped: t.skipped, Elapsed: max(0, t.settledAt-t.start),
	}
	o.Coordinator, o.Agreed = t.agreement()
	for _, k := range election.Kinds() {
		if n := t.counts[k]; n > 0 {
			o.Messages[k] = n
			o.Total += n
		}
	}
	for id, m := range t.machines[1:] {
		v := View{Process: election.ID(id + 1)}
		if m == nil || t.dead[v.Process] {
			v.Down = true
		} else {
			v.Status, v.rows, v.encode = m.Status(), m.Rows, m.Encode
		}
		o.Views = append(o.Views, v)
	}
	return o
}
