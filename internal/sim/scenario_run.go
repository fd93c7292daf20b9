package sim

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// maxVacantHeartbeats is the time, in heartbeats, after which a run with offices ends without a coordinator.
const maxVacantHeartbeats = 600

func (r *scenarioRun) run() error {
	limit := election.Never
	if r.hasOffice() {
		limit = r.start + maxVacantHeartbeats*r.heartbeat()
	}
	for range maxSteps {
		e, more := r.queue.pop()
		if !more || e.at > limit {
			return nil
		}
		r.handle(e)
		if r.queue.size > r.maxPending {
			return inputErrorf("more than %d messages are in flight at once: choose fewer processes", r.maxPending)
		}
		if r.hasOffice() && r.electionMessages == 0 && e.kind != eventTimer && r.finished() {
			return nil
		}
	}
	return inputErrorf("the election isn'r over after %d steps: choose fewer processes", maxSteps)
}

// finished reports whether all live processes recognize the highest live process as the coordinator. A recovered
// process acquires the office by a hand-over, until which they agree on another one.
func (r *scenarioRun) finished() bool {
	if r.queue.now <= r.start {
		return false
	}
	coordinator, agreed := r.agreement()
	return agreed && coordinator == r.highestAlive()
}

func (r *scenarioRun) highestAlive() election.ID {
	id := election.ID(r.scenario.Processes)
	for r.crashed[id] {
		id--
	}
	return id
}

func (r *scenarioRun) handle(e event) {
	switch e.kind {
	case eventDelivery:
		r.handleArrival(e)
	case eventUndelivered:
		m := r.slab.take(e.slot)
		r.step(election.Input{Kind: election.Undelivered, Message: m}, m.From)
	case eventTimer:
		if r.machines[e.process] == nil || r.wakeAt[e.process] != e.at {
			return
		}
		r.wakeAt[e.process] = election.Never
		if r.machines[e.process].Deadline() <= e.at {
			r.step(election.Input{Kind: election.TimePassed}, e.process)
		} else {
			r.setTimer(e.process)
		}
	case eventInitiate:
		r.initiate(e.process)
	default:
	}
}

func (r *scenarioRun) handleArrival(e event) {
	m := r.slab.take(e.slot)
	if m.Kind.Counts() {
		r.electionMessages--
	}
	if r.machines[m.To] == nil {
		if r.algorithm.Ring && m.Kind.Counts() {
			// The sender gets no acknowledgment in time.
			r.queue.push(event{at: e.at + r.scenario.Latency, kind: eventUndelivered, slot: r.slab.put(&m)})
		}
		return
	}
	r.step(election.Input{Kind: election.Receive, Message: m}, m.To)
}

func (r *scenarioRun) initiate(id election.ID) {
	in := election.Input{Kind: election.Campaign}
	switch {
	case r.hasOffice() && id == r.scenario.Recover:
		in.Kind = election.TimePassed // it has received messages from the start
	case id == r.scenario.Recover:
		in.Kind = election.Recover
	case r.hasOffice():
		in.Kind, in.Peer = election.Suspect, r.firstCoordinator
	case r.coordinatorCrashed:
		if r.machines[id].Status().Term > 1 {
			return // a higher process has started an election already
		}
		in.Peer = r.firstCoordinator
	}
	r.step(in, id)
}

func (r *scenarioRun) step(in election.Input, id election.ID) {
	in.Now = r.queue.now
	r.out.Reset()
	before := r.machines[id].Status()
	r.machines[id].Step(in, &r.out)
	if r.scenario.Watch != nil {
		r.scenario.Watch(transcript.Step{At: in.Now, Process: id, Input: in, Output: &r.out})
	}
	for i := range r.out.Send {
		m := &r.out.Send[i]
		r.count(m)
		r.queue.push(event{at: in.Now + r.scenario.Latency, kind: eventDelivery, slot: r.slab.put(m)})
	}
	after := r.machines[id].Status()
	if after.Coordinator != before.Coordinator || after.Term != before.Term || r.learned() {
		r.lastChangeAt = in.Now
	}
	r.setTimer(id)
}

// learned reports whether the process recognized a coordinator in the last step,
// possibly the one that it had recognized before.
func (r *scenarioRun) learned() bool {
	return slices.ContainsFunc(r.out.Events, func(e election.Event) bool {
		return e.Kind == election.Elected || e.Kind == election.Recognized
	})
}

// count counts a message of an election. Messages to ring successors that are down are counted separately.
func (r *scenarioRun) count(m *election.Message) {
	if !m.Kind.Counts() {
		return
	}
	r.electionMessages++
	if r.algorithm.Ring && r.machines[m.To] == nil {
		r.skipped++
		return
	}
	r.counts[m.Kind]++
}

// setTimer schedules a timer event for the process's deadline, unless one is
// pending that fires no later. A timer that fires before the deadline is set again.
func (r *scenarioRun) setTimer(id election.ID) {
	due := r.machines[id].Deadline()
	if due == election.Never || r.wakeAt[id] <= due {
		return
	}
	r.wakeAt[id] = max(due, r.queue.now)
	r.queue.push(event{at: r.wakeAt[id], kind: eventTimer, process: id})
}

// agreement returns the coordinator that the live processes recognize, the highest
// if there are several, and whether they agree on one that is up.
func (r *scenarioRun) agreement() (election.ID, bool) {
	coordinator, agreed := election.None, true
	for id, m := range r.machines {
		if m == nil || r.crashed[id] {
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
	up := int(coordinator) < len(r.machines) && r.machines[coordinator] != nil && !r.crashed[coordinator]
	return coordinator, agreed && up
}

func (r *scenarioRun) outcome() Outcome {
	o := Outcome{
		Algorithm: r.scenario.Algorithm, Processes: r.scenario.Processes,
		Messages: map[election.Kind]int{}, Skipped: r.skipped, Elapsed: max(0, r.lastChangeAt-r.start),
	}
	o.Coordinator, o.Agreed = r.agreement()
	for _, k := range election.Kinds() {
		if n := r.counts[k]; n > 0 {
			o.Messages[k] = n
			o.Total += n
		}
	}
	for id, m := range r.machines[1:] {
		v := View{Process: election.ID(id + 1)}
		if m == nil || r.crashed[v.Process] {
			v.Down = true
		} else {
			v.Status, v.rows = m.Status(), m.Rows
		}
		o.Views = append(o.Views, v)
	}
	return o
}
