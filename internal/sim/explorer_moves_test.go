package sim

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// move changes a state in one of the possible ways and describes the change.
type move func(e *explorer, s *systemState) string

// moves returns all moves that are possible in a state.
func (e *explorer) moves(s *systemState) []move {
	moves := e.arrivals(s)
	quiet := len(moves) == 0
	between := quiet && !e.electing(s)
	for id := election.ID(1); int(id) <= e.x.Processes; id++ {
		switch {
		case s.up[id]:
			if s.crashes > 0 && (between || !e.x.CrashOnlyWhenIdle) {
				moves = append(moves, crashNow(id))
			}
			if e.x.Safety == "" && e.canDetectCrash(s, id) {
				moves = append(moves, campaignNow(id))
			}
		case s.restarts > 0 && (between || e.x.Safety != ""):
			moves = append(moves, restartNow(id))
		}
	}
	if quiet {
		moves = append(moves, e.timers(s)...)
	}
	return moves
}

// beginRound begins a round with all messages in flight, if the present one is over.
func (s *systemState) beginRound() {
	if slices.Max(s.inRound) > 0 {
		return
	}
	for link, messages := range s.links {
		s.inRound[link] = len(messages)
	}
}

// arrivals returns the moves that deliver or lose the first message of a link.
func (e *explorer) arrivals(s *systemState) []move {
	var moves []move
	for link, messages := range s.links {
		if len(messages) == 0 || e.x.Rounds && s.inRound[link] == 0 {
			continue
		}
		moves = append(moves, deliverNext(link))
		if s.losses > 0 {
			moves = append(moves, loseNext(link))
		}
	}
	return moves
}

// electing reports whether any live process takes part in an election.
func (e *explorer) electing(s *systemState) bool {
	for id, m := range s.machines {
		if id > 0 && s.up[id] && m.Status().Electing {
			return true
		}
	}
	return false
}

// canDetectCrash reports whether a process can detect that its coordinator is down.
func (e *explorer) canDetectCrash(s *systemState, id election.ID) bool {
	status := s.machines[id].Status()
	return status.Coordinator != election.None && !s.up[status.Coordinator] && !status.Electing
}

// timers returns the moves that wake the processes with the earliest deadline.
func (e *explorer) timers(s *systemState) []move {
	next := election.Never
	for id, m := range s.machines {
		if id > 0 && s.up[id] {
			next = min(next, m.Deadline())
		}
	}
	if next == election.Never {
		return nil
	}
	var moves []move
	for id, m := range s.machines {
		if id > 0 && s.up[id] && m.Deadline() <= next {
			moves = append(moves, wakeNow(election.ID(id), max(next, s.now)))
		}
	}
	return moves
}

// step passes an input to a copy of a process.
func (e *explorer) step(s *systemState, id election.ID, in election.Input) {
	in.Now = s.now
	m := s.machines[id].Clone()
	s.machines[id] = m
	e.out.Reset()
	before := m.Status()
	m.Step(in, &e.out)
	for _, msg := range e.out.Send {
		if e.hasEffect(s, &msg) {
			link := e.link(msg.From, msg.To)
			s.links[link] = append(slices.Clip(s.links[link]), msg)
		}
	}
	e.check(s, id, before)
	for _, event := range e.out.Events {
		if event.Kind == election.StopRequested { // the application stops at once
			e.step(s, id, election.Input{Kind: election.Stopped, Term: event.Term})
			break
		}
	}
}

func (e *explorer) link(from, to election.ID) int { return int(from)*(e.x.Processes+1) + int(to) }

// hasEffect reports whether the arrival of a message would have an effect now. A message to a process that is down has
// none, unless its sender learns of that. It is lost at once, so that its arrival doesn't double the number of states.
func (e *explorer) hasEffect(s *systemState, m *election.Message) bool {
	return s.up[m.To] || e.algorithm.Ring && m.Kind.Counts() && s.up[m.From]
}

// dropMessages drops the messages that have no effect because a process has crashed.
func (e *explorer) dropMessages(s *systemState) {
	for link, messages := range s.links {
		var kept []election.Message
		inRound := 0
		for i := range messages {
			if !e.hasEffect(s, &messages[i]) {
				continue
			}
			kept = append(kept, messages[i])
			if i < s.inRound[link] {
				inRound++
			}
		}
		s.links[link], s.inRound[link] = kept, inRound
	}
}

// check checks the invariants of a state after a step of process id.
func (e *explorer) check(s *systemState, id election.ID, before election.Status) {
	after := s.machines[id].Status()
	if after.Term < before.Term {
		s.fail("terms", fmt.Sprintf("the term of process %d went from %d to %d", id, before.Term, after.Term))
	}
	for _, event := range e.out.Events {
		if event.Kind != election.TenureStarted {
			continue
		}
		if event.Token == s.token || event.Token < s.token && e.x.Safety != "Available" {
			s.fail("tokens", fmt.Sprintf("process %d has token %d after token %d", id, event.Token, s.token))
		}
		s.token = max(s.token, event.Token)
	}
	if e.x.Safety == "" || e.x.Safety == "Available" {
		return
	}
	for other, m := range s.machines {
		if other == 0 || other == int(id) || !s.up[other] {
			continue
		}
		peer := m.Status()
		if after.Token != 0 && s.now < after.Until && peer.Token != 0 && s.now < peer.Until {
			s.fail("one holder", fmt.Sprintf("processes %d and %d have tenure", id, other))
		}
		if after.Term == peer.Term && after.Coordinator != peer.Coordinator &&
			after.Coordinator != election.None && peer.Coordinator != election.None {
			s.fail("one coordinator per term", fmt.Sprintf("processes %d and %d differ in term %d", id, other, after.Term))
		}
	}
}

// fail records a violation. Only the first one counts.
func (s *systemState) fail(invariant, detail string) {
	if s.violation == nil {
		s.violation = &Violation{Invariant: invariant, Detail: detail}
	}
}

// popMessage removes and returns the first message of a link.
func (s *systemState) popMessage(link int) election.Message {
	m := s.links[link][0]
	s.links[link], s.inRound[link] = s.links[link][1:], max(0, s.inRound[link]-1)
	return m
}

func deliverNext(link int) move {
	return func(e *explorer, s *systemState) string {
		m := s.popMessage(link)
		if s.up[m.To] {
			e.step(s, m.To, election.Input{Kind: election.Receive, Message: m})
		} else if e.hasEffect(s, &m) {
			e.step(s, m.From, election.Input{Kind: election.Undelivered, Message: m})
		}
		return m.Describe()
	}
}

func loseNext(link int) move {
	return func(_ *explorer, s *systemState) string {
		s.losses--
		m := s.popMessage(link)
		return "lost: " + m.Describe()
	}
}

func crashNow(id election.ID) move {
	return func(e *explorer, s *systemState) string {
		s.crashes--
		s.up[id] = false
		e.dropMessages(s)
		if e.x.Safety != "" {
			for other := election.ID(1); int(other) <= e.x.Processes; other++ {
				if s.up[other] {
					e.step(s, other, election.Input{Kind: election.Ended, Peer: id, Life: s.incarnations[id]})
				}
			}
		}
		return fmt.Sprintf("process %d crashes", id)
	}
}

func restartNow(id election.ID) move {
	return func(e *explorer, s *systemState) string {
		s.restarts--
		m, err := e.machine(s, id, true)
		if err != nil {
			s.fail("setup", err.Error())
			return err.Error()
		}
		s.machines[id], s.up[id] = m, true
		if e.x.Safety == "" {
			e.step(s, id, election.Input{Kind: election.Recover})
		}
		return fmt.Sprintf("process %d restarts", id)
	}
}

func campaignNow(id election.ID) move {
	return func(e *explorer, s *systemState) string {
		dead := s.machines[id].Status().Coordinator
		e.step(s, id, election.Input{Kind: election.Campaign, Peer: dead})
		return fmt.Sprintf("process %d detects that %d is down", id, dead)
	}
}

func wakeNow(id election.ID, at election.Tick) move {
	return func(e *explorer, s *systemState) string {
		s.now = at
		e.step(s, id, election.Input{Kind: election.TimePassed})
		return fmt.Sprintf("at %d the timer of process %d fires", at, id)
	}
}
