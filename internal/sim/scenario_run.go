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
	// maxRingMessages is how many may go all the way round a ring.
	maxRingMessages = 50_000_000
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
	if cost > maxRingMessages {
		return inputErrorf("%s with %d processes takes too many messages: choose fewer processes, or RingChampion or RingSkip", s.Algorithm, s.Processes)
	}
	return nil
}

// maxVacantHeartbeats is how many heartbeats an office may stay vacant before it is said
// that nobody gets hold of it.
const maxVacantHeartbeats = 600

func (t *scenarioRun) run() error {
	limit := election.Never
	if t.hasOffice() {
		limit = t.start + maxVacantHeartbeats*t.heartbeat()
	}
	for range maxSteps {
		e, more := t.queue.pop()
		if !more || e.at > limit {
			return nil
		}
		t.handle(e)
		if t.queue.size > t.maxPending {
			return inputErrorf("more than %d messages are in flight at once: choose fewer processes", t.maxPending)
		}
		if t.hasOffice() && t.electionMessages == 0 && e.kind != eventTimer && t.finished() {
			return nil
		}
	}
	return inputErrorf("the election isn't over after %d steps: choose fewer processes", maxSteps)
}

// settled reports whether the highest process alive holds the office and
// everyone alive knows it. A recovered one gets it by a handover, before which
// they agree on another.
func (t *scenarioRun) finished() bool {
	if t.queue.now <= t.start {
		return false
	}
	coordinator, agreed := t.agreement()
	return agreed && coordinator == t.highestAlive()
}

// highest is the highest process alive.
func (t *scenarioRun) highestAlive() election.ID {
	id := election.ID(t.scenario.Processes)
	for t.crashed[id] {
		id--
	}
	return id
}

func (t *scenarioRun) handle(e event) {
	switch e.kind {
	case eventDelivery:
		t.handleArrival(e)
	case eventUndelivered:
		m := t.slab.take(e.slot)
		t.step(election.Input{Kind: election.Undelivered, Message: m}, m.From)
	case eventTimer:
		if t.machines[e.process] == nil || t.wakeAt[e.process] != e.at {
			return
		}
		t.wakeAt[e.process] = election.Never
		if t.machines[e.process].Deadline() <= e.at {
			t.step(election.Input{Kind: election.TimePassed}, e.process)
		} else {
			t.setTimer(e.process)
		}
	case eventInitiate:
		t.initiate(e.process)
	default:
	}
}

func (t *scenarioRun) handleArrival(e event) {
	m := t.slab.take(e.slot)
	if m.Kind.Counts() {
		t.electionMessages--
	}
	if t.machines[m.To] == nil {
		if t.algorithm.Ring && m.Kind.Counts() {
			// The sender's wait ends: no sign of the message's arrival has come.
			t.queue.push(event{at: e.at + t.scenario.Latency, kind: eventUndelivered, slot: t.slab.put(&m)})
		}
		return
	}
	t.step(election.Input{Kind: election.Receive, Message: m}, m.To)
}

// call makes a process start an election, or recover.
func (t *scenarioRun) initiate(id election.ID) {
	in := election.Input{Kind: election.Campaign}
	switch {
	case t.hasOffice() && id == t.scenario.Recover:
		in.Kind = election.TimePassed // it has been listening from the start
	case id == t.scenario.Recover:
		in.Kind = election.Recover
	case t.hasOffice():
		in.Kind, in.Peer = election.Suspect, t.initial
	case t.initialCrashed:
		if t.machines[id].Status().Term > 1 {
			return // somebody above acted in time
		}
		in.Peer = t.initial
	}
	t.step(in, id)
}

// step lets a process take an input, and puts what it sends on its way.
func (t *scenarioRun) step(in election.Input, id election.ID) {
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
		t.queue.push(event{at: in.Now + t.scenario.Latency, kind: eventDelivery, slot: t.slab.put(m)})
	}
	after := t.machines[id].Status()
	if after.Coordinator != before.Coordinator || after.Term != before.Term || t.learned() {
		t.lastChangeAt = in.Now
	}
	t.setTimer(id)
}

// learned reports whether the process has just learned of a coordinator. It may
// be the one that it knew before.
func (t *scenarioRun) learned() bool {
	return slices.ContainsFunc(t.out.Events, func(e election.Event) bool {
		return e.Kind == election.Elected || e.Kind == election.Recognized
	})
}

// count counts a message, unless it goes to a successor that doesn't respond:
// such attempts are counted apart.
func (t *scenarioRun) count(m *election.Message) {
	if !m.Kind.Counts() {
		return
	}
	t.electionMessages++
	if t.algorithm.Ring && t.machines[m.To] == nil {
		t.skipped++
		return
	}
	t.counts[m.Kind]++
}

// arm sets the alarm for the process's deadline. An alarm that is set too early
// is set again when it goes off.
func (t *scenarioRun) setTimer(id election.ID) {
	due := t.machines[id].Deadline()
	if due == election.Never || t.wakeAt[id] <= due {
		return
	}
	t.wakeAt[id] = max(due, t.queue.now)
	t.queue.push(event{at: t.wakeAt[id], kind: eventTimer, process: id})
}

// agreement is whom the live processes name, the highest of several.
func (t *scenarioRun) agreement() (election.ID, bool) {
	coordinator, agreed := election.None, true
	for id, m := range t.machines {
		if m == nil || t.crashed[id] {
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
	up := int(coordinator) < len(t.machines) && t.machines[coordinator] != nil && !t.crashed[coordinator]
	return coordinator, agreed && up
}

func (t *scenarioRun) outcome() Outcome {
	o := Outcome{
		Algorithm: t.scenario.Algorithm, Processes: t.scenario.Processes,
		Messages: map[election.Kind]int{}, Skipped: t.skipped, Elapsed: max(0, t.lastChangeAt-t.start),
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
		if m == nil || t.crashed[v.Process] {
			v.Down = true
		} else {
			v.Status, v.rows, v.encode = m.Status(), m.Rows, m.Encode
		}
		o.Views = append(o.Views, v)
	}
	return o
}
