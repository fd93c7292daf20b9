// Package transcript merges the journals of a group's agents into the transcript of an
// election. It is pure: the caller fetches the journals. It also writes the steps of an election as text, and
// draws them as sequence diagrams, whether they are those of a transcript or of a simulation.
//
//	journals  ->  parts: what each agent has of one election
//	          ->  clocks: by how much the agents' clocks differ
//	          ->  merge: one order, in which causes come before effects
//
// # Order
//
// The steps of an agent keep their order, and a step that received a message comes after the
// step that sent it. A message is recognized by its sender, the sender's life, and its Lamport
// timestamp. Steps that don't depend on each other are in the order of time.
//
// # Time
//
// The clocks of agents differ. If a message arrived before it was sent according to the clocks
// of two agents, the difference is estimated as NTP does: as if the fastest message had taken
// equally long in both directions. So a time between two agents is wrong by at most their
// fastest round trip in this election. Times between the steps of one agent are exact.
//
// # What is not guaranteed
//
// A transcript is complete only if all journals are. Agents that aren't reachable, have
// restarted since, or have replaced the entries by newer ones are missing in it.
package transcript

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Election is the transcript of an election.
type Election struct {
	Group     string `json:"group"`
	Algorithm string `json:"algorithm"`
	Safety    string `json:"safety"`
	// Coordinator and Term are the result. They are not set while the election is under way.
	Coordinator string `json:"coordinator,omitempty"`
	Term        uint64 `json:"term,omitempty"`
	// Former is the coordinator whose tenure ended before, and Cause why, as its own agent said if it
	// resigned. Both are empty for the first election.
	Former string           `json:"former,omitempty"`
	Cause  control.EndCause `json:"cause,omitempty"`
	// Began is the time of the first step, on the clock of the coordinator.
	Began time.Time `json:"began"`
	// Milestones divide the election into phases.
	Milestones []Milestone `json:"milestones"`
	// Messages counts the messages that were sent by kind. Of those of the office, such as
	// BEAT and GRANT, repetitions don't count.
	Messages map[string]int `json:"messages"`
	// Waited is how connections of clients waited, by all agents that remember it, nil if none does.
	Waited *control.Wait `json:"waited,omitempty"`
	// Members are in the order of the ring.
	Members []string `json:"members"`
	// Missing are the members whose part is missing or incomplete.
	Missing []Missing   `json:"missing"`
	Steps   []AgentStep `json:"steps"`

	// complete has the agents whose parts are complete.
	complete map[string]bool
}

// AgentStep is a step of an agent.
type AgentStep struct {
	// Micros is the time since the election began, in microseconds.
	Micros int64  `json:"micros"`
	Agent  string `json:"agent"`
	journal.Step
}

// Missing is a member whose part of the transcript is missing or incomplete.
type Missing struct {
	Agent  string `json:"agent"`
	Reason string `json:"reason"`
}

// Terms returns the terms in which a coordinator was elected, according to the journals, the lowest first.
func Terms(journals []journal.Journal) []uint64 {
	terms := map[uint64]bool{}
	for i := range journals {
		for _, p := range cut(&journals[i]) {
			if p.settled != nil {
				terms[p.term] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(terms))
}

// Merge returns the transcript of the election of the coordinator in a term. With term 0, it
// returns that of the last election, which may be under way. It returns nil if the journals
// have nothing about it. missing are the members whose journals the caller doesn't have.
func Merge(journals []journal.Journal, term uint64, missing ...Missing) *Election {
	parts := choose(journals, &term)
	if len(parts) == 0 {
		return nil
	}
	reference := max(0, slices.IndexFunc(parts, func(p *part) bool { return p.journal.Agent == p.coordinator }))
	ahead := align(parts, reference)
	parts, ahead, late := withoutLate(parts, ahead)
	steps := trim(merge(parts, ahead), parts)
	e := &Election{
		Group: parts[0].journal.Group, Algorithm: parts[0].journal.Algorithm, Safety: parts[0].journal.Safety, Term: term,
		Began: steps[0].at, Messages: map[string]int{}, Missing: append([]Missing{}, missing...), complete: map[string]bool{},
	}
	for _, p := range parts {
		e.Coordinator = cmp.Or(e.Coordinator, p.coordinator)
		if e.complete[p.journal.Agent] = !p.truncated(); p.truncated() {
			e.Missing = append(e.Missing, Missing{p.journal.Agent, "incomplete: newer entries have replaced the first ones"})
		}
	}
	for _, p := range late {
		e.Missing = append(e.Missing, Missing{p.journal.Agent, "its agent has started since then"})
	}
	for i := range journals {
		e.addWaits(journals[i].Waits)
	}
	e.addMembers(parts)
	e.addSteps(steps)
	e.Former, e.Cause = cause(steps)
	e.Milestones = milestones(steps, e)
	return e
}

func choose(journals []journal.Journal, term *uint64) []*part {
	var settled, open []*part
	last := uint64(0)
	for i := range journals {
		for _, p := range cut(&journals[i]) {
			if p.settled == nil {
				open = append(open, p)
			} else {
				settled, last = append(settled, p), max(last, p.term)
			}
		}
	}
	underWay := slices.ContainsFunc(open, func(p *part) bool { return p.formerTerm >= last })
	if *term == 0 && underWay {
		return slices.DeleteFunc(open, func(p *part) bool { return p.formerTerm < last })
	}
	if *term == 0 {
		*term = last
	}
	var parts []*part
	for _, p := range settled {
		seen := slices.ContainsFunc(parts, func(q *part) bool { return q.journal == p.journal })
		if p.term == *term && !seen {
			parts = append(parts, p)
		}
	}
	if len(parts) > 0 && *term == last {
		parts = append(parts, slices.DeleteFunc(open, func(p *part) bool { return p.formerTerm >= last })...)
	}
	return parts
}

// withoutLate separates the parts of agents that only started when all others knew the coordinator already.
func withoutLate(parts []*part, ahead []time.Duration) (rest []*part, restAhead []time.Duration, late []*part) {
	var end time.Time
	for i, p := range parts {
		if p.settled != nil && !p.started() && p.settled.At.Add(-ahead[i]).After(end) {
			end = p.settled.At.Add(-ahead[i])
		}
	}
	for i, p := range parts {
		if !end.IsZero() && p.started() && p.steps[0].At.Add(-ahead[i]).After(end) {
			late = append(late, p)
			continue
		}
		rest, restAhead = append(rest, p), append(restAhead, ahead[i])
	}
	return rest, restAhead, late
}

// trim removes what agents did before the first of them lost the coordinator, and what they
// did when all knew the next one, except for what earlier messages caused.
func trim(steps []*placed, parts []*part) []*placed {
	first := slices.IndexFunc(steps, func(s *placed) bool { return s.Step == s.part.lost })
	if first < 0 {
		first = slices.IndexFunc(steps, func(s *placed) bool { return s.Step == s.part.steps[s.part.begin] })
	}
	steps = steps[first:]
	end := len(steps)
	if !slices.ContainsFunc(parts, func(p *part) bool { return p.settled == nil }) {
		for i, s := range steps {
			if s.Step == s.part.settled {
				end = i + 1
			}
		}
	}
	kept := map[*placed]bool{}
	var rest []*placed
	for i, s := range steps {
		if i < end || kept[s.cause] {
			kept[s] = true
			rest = append(rest, s)
		}
	}
	return rest
}

// addMembers sets the members to those of the newest list that the parts have.
func (e *Election) addMembers(parts []*part) {
	for _, p := range parts {
		if len(p.journal.Members) > len(e.Members) {
			e.Members = nil
			for _, m := range p.journal.Members {
				e.Members = append(e.Members, m.Name)
			}
		}
	}
}

// addWaits adds what an agent remembers of connections that waited for the coordinator.
func (e *Election) addWaits(waits []control.Wait) {
	for i := range waits {
		if w := &waits[i]; e.Coordinator != "" && w.Term == e.Term {
			if e.Waited == nil {
				e.Waited = &control.Wait{Term: e.Term}
			}
			e.Waited.Add(w)
		}
	}
}

func (e *Election) addSteps(steps []*placed) {
	for _, s := range steps {
		step := AgentStep{Micros: s.at.Sub(e.Began).Microseconds(), Agent: s.part.journal.Agent, Step: *s.Step}
		e.Steps = append(e.Steps, step)
		for _, m := range s.Sent {
			e.Messages[m.Kind]++
		}
	}
}

// cause returns whose tenure ended before the election, and why.
func cause(steps []*placed) (former string, why control.EndCause) {
	i := slices.IndexFunc(steps, func(s *placed) bool { return s.Step == s.part.lost })
	if i < 0 {
		return "", control.EndNone
	}
	s := steps[i]
	emits := func(kind election.EventKind) bool {
		return slices.ContainsFunc(s.Events, func(e journal.Event) bool { return eventKinds[e.Kind] == kind })
	}
	if causeTexts[s.Cause] != "" {
		return s.part.former, s.Cause
	}
	why = control.EndSilence
	switch kind := inputKinds[s.Input]; {
	case kind == election.StepDown:
		why = control.EndStepDown
	case kind == election.Ended:
		why = control.EndCrash
	case emits(election.StopRequested), emits(election.OfficeResigned),
		kind == election.Receive && messageKinds[s.Message.Kind] == election.Resigned:
		why = control.EndHandOver
	case emits(election.TenureLost):
		why = control.EndLapse
	case kind == election.Adopt:
		why = control.EndMembership
	}
	return s.part.former, why
}

// Milestone is the end of a phase of an election.
type Milestone struct {
	// Micros is the time since the election began, and TookMicros that since the last milestone.
	Micros     int64  `json:"micros"`
	TookMicros int64  `json:"tookMicros"`
	Text       string `json:"text"`
}

func milestones(steps []*placed, e *Election) []Milestone {
	found := []Milestone{}
	add := func(i int, format string, arguments ...any) {
		m := Milestone{Micros: steps[i].at.Sub(e.Began).Microseconds(), Text: fmt.Sprintf(format, arguments...)}
		if len(found) > 0 {
			m.TookMicros = m.Micros - found[len(found)-1].Micros
		}
		found = append(found, m)
	}
	last := -1
	for i, s := range steps {
		if e.Coordinator != "" && s.Step == s.part.settled && s.part.journal.Agent != e.Coordinator {
			last = i
		}
	}
	for i, s := range steps {
		agent := s.part.journal.Agent
		if s.Step == s.part.lost && (len(found) == 0 || agent == e.Coordinator) {
			add(i, "%s", loss(s, e))
		}
		if agent == e.Former {
			addResignation(s, func(text string) { add(i, "%s", text) })
		}
		if agent == e.Coordinator {
			addSuccess(s, e, func(text string) { add(i, "%s", text) })
		}
		if i == last {
			add(i, "%s follows %s, as the last agent of this transcript", agent, e.Coordinator)
		}
	}
	return found
}

// external are the causes that come from outside of the election.
var external = []control.EndCause{
	control.EndExcluded, control.EndStopped, control.EndSessionClosed, control.EndNotRenewed, control.EndProbeFailed,
}

func loss(s *placed, e *Election) string {
	agent := s.part.journal.Agent
	switch {
	case inputKinds[s.Input] == election.StepDown:
		return fmt.Sprintf("%s is requested to step down", agent)
	case agent == e.Former && e.Cause == control.EndLapse:
		return fmt.Sprintf("%s can't renew its lease and gives up the office", agent)
	case agent == e.Former && slices.Contains(external, e.Cause):
		return e.describeCause()
	case agent == e.Former:
		return fmt.Sprintf("%s begins to hand over", agent)
	case inputKinds[s.Input] == election.Ended:
		return fmt.Sprintf("%s finds that the process of %s has ended", agent, e.Former)
	case s.Message != nil && messageKinds[s.Message.Kind] == election.Resigned:
		return fmt.Sprintf("%s receives the resignation of %s", agent, e.Former)
	}
	return fmt.Sprintf("%s has not heard from %s for the suspicion timeout", agent, e.Former)
}

func addResignation(s *placed, add func(string)) {
	if i := slices.IndexFunc(s.Events, isKind(election.OfficeResigned)); i >= 0 {
		text := s.part.journal.Agent + " resigns"
		if to := s.Events[i].Peer; to != "" {
			text += " in favor of " + to
		}
		add(text)
	}
}

func addSuccess(s *placed, e *Election, add func(string)) {
	elected := slices.ContainsFunc(s.Events,
		func(event journal.Event) bool { return isKind(election.Elected)(event) && event.Term == e.Term })
	switch begins := slices.ContainsFunc(s.Events, isKind(election.TenureStarted)); {
	case begins && e.Safety == "Available":
		add(e.Coordinator + " is coordinator: its tenure begins")
	case begins:
		add(e.Coordinator + " has the grants of a majority: its tenure begins")
	case elected:
		add(e.Coordinator + " wins the election")
	}
}

func isKind(kind election.EventKind) func(journal.Event) bool {
	return func(e journal.Event) bool { return eventKinds[e.Kind] == kind }
}
