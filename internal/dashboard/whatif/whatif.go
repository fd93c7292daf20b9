// Package whatif answers what happens to a group if some of its members crash. It runs the
// election of the group's algorithm in the simulator, with the group's members, priorities,
// safety mode and timing. It is pure.
//
// # What is not guaranteed
//
// The simulation begins while all members are up and the one of the highest priority leads.
// The members crash at the same moment, their connections are closed, and each message takes
// the same time. The time includes neither the stop of an application nor processing, and
// neither that until a node that fails is noticed, which the text has.
package whatif

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/diagram"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
)

// The limits of what one request can cost.
const (
	// MembersMax is the most members of a group that is simulated.
	MembersMax = diagram.MaxLifelines
	// LatencyMax is the longest time that a message can take.
	LatencyMax = time.Second
)

// Question is what to simulate.
type Question struct {
	// Down are the pods of the members that crash.
	Down []string
	// Silent: their node fails, which nobody notices by closed connections.
	Silent bool
	// Latency is the time that a message takes.
	Latency time.Duration
}

// Answer is what happens.
type Answer struct {
	// Text is the result in a sentence.
	Text string `json:"text"`
	// Coordinator is the next one, "" if there is none.
	Coordinator string `json:"coordinator"`
	// Cost has the number of messages of each kind, and Millis the time until the last
	// member knows the coordinator. They are empty if there is no election.
	Cost   string  `json:"cost,omitempty"`
	Millis float64 `json:"millis,omitempty"`
	// Sequence is empty if there is no election.
	diagram.Sequence
}

// Ask answers a question. Its errors say what would be right.
func Ask(g *v1.ElectionGroup, q Question) (*Answer, error) {
	members, err := membersOf(g)
	if err != nil {
		return nil, err
	}
	if q.Latency <= 0 || q.Latency > LatencyMax {
		return nil, fmt.Errorf("the time of a message must be above 0 and at most %s, got %s", LatencyMax, q.Latency)
	}
	down := map[string]bool{}
	for _, pod := range q.Down {
		if !slices.ContainsFunc(members, func(m v1.Member) bool { return m.Pod == pod }) {
			return nil, fmt.Errorf("%.100q is no member of the group", pod)
		}
		down[pod] = true
	}
	if lease := time.Duration(g.Spec.Safety.LeaseMillis) * time.Millisecond; g.Spec.Safety.Mode != v1.Available && 2*slowest(g, q.Latency) >= lease {
		return nil, fmt.Errorf("the lease of %s is too short for messages that take %s: choose faster ones", lease, q.Latency)
	}
	if a := withoutElection(g, members, down); a != nil {
		return a, nil
	}
	a, err := simulate(g, members, down, q.Latency)
	if err == nil && q.Silent && a.Coordinator != "" {
		silent := g.Spec.Timing.SuspicionTimeout().Milliseconds()
		if g.Spec.Safety.Mode == v1.Majority {
			silent = max(silent, int64(g.Spec.Safety.LeaseMillis))
		}
		a.Text += fmt.Sprintf(" Nobody closes the connections of a node that fails: the others notice it up to %d ms later.", silent)
	}
	return a, err
}

// slowest returns the shortest interval of heartbeats with which an election ends between
// two of them.
func slowest(g *v1.ElectionGroup, latency time.Duration) time.Duration {
	interval := 4 * latency
	if strings.HasPrefix(string(g.Spec.Algorithm), "Ring") {
		interval = max(interval, 2*latency*time.Duration(len(g.Status.Protocol.MemberList.Members)))
	}
	return interval
}

// membersOf returns the members in the order of their ranks, lowest first. Process i of the
// simulation is the member at i-1.
func membersOf(g *v1.ElectionGroup) ([]v1.Member, error) {
	list := g.Status.Protocol.MemberList
	switch {
	case list == nil || len(list.Members) == 0:
		return nil, errors.New("the group has no member list yet")
	case len(list.Members) > MembersMax:
		return nil, fmt.Errorf("the group has %d members; groups of up to %d are simulated here, and larger ones by kubectl conclave simulate", len(list.Members), MembersMax)
	}
	members := slices.Clone(list.Members)
	slices.SortStableFunc(members, func(a, b v1.Member) int { return cmp.Compare(a.Priority, b.Priority) })
	return members, nil
}

// withoutElection answers if nobody starts an election, or nobody can win it.
func withoutElection(g *v1.ElectionGroup, members []v1.Member, down map[string]bool) *Answer {
	up, eligible := 0, ""
	for _, m := range members {
		if !down[m.Pod] {
			up++
			if m.Priority > 0 {
				eligible = m.Pod
			}
		}
	}
	first := members[len(members)-1]
	majority := len(members)/2 + 1
	switch {
	case up == 0:
		return &Answer{Text: "All members are down: there is no coordinator."}
	case g.Spec.Safety.Mode != v1.Available && up < majority:
		return &Answer{Text: fmt.Sprintf("No member can lead: in %s mode a coordinator needs a majority, %d of %d members, and only %d are up.",
			g.Spec.Safety.Mode, majority, len(members), up)}
	case eligible == "":
		return &Answer{Text: "No member can lead: those that are up have priority 0."}
	case !down[first.Pod]:
		return &Answer{Coordinator: first.Pod, Text: first.Pod + " remains the coordinator: there is no election."}
	}
	return nil
}

func simulate(g *v1.ElectionGroup, members []v1.Member, down map[string]bool, latency time.Duration) (*Answer, error) {
	id := map[string]election.ID{}
	for i, m := range members {
		id[m.Pod] = election.ID(i + 1) //nolint:gosec // at most MembersMax
	}
	s := sim.Scenario{
		Algorithm: string(g.Spec.Algorithm), Processes: len(members), Safety: string(g.Spec.Safety.Mode),
		Latency: ticks(latency), Heartbeat: millis(g.Spec.Timing.HeartbeatMillis), Lease: millis(g.Spec.Safety.LeaseMillis),
	}
	for _, m := range g.Status.Protocol.MemberList.Members {
		s.Ring = append(s.Ring, id[m.Pod])
	}
	for _, m := range members {
		switch {
		case down[m.Pod]:
			s.Crashed = append(s.Crashed, id[m.Pod])
		case m.Priority > 0:
			s.Initiators = append(s.Initiators, id[m.Pod])
		}
	}
	record := recorder{scenario: &s, members: members, strict: g.Spec.Safety.Mode == v1.Strict}
	record.sequence = diagram.SequenceRecorder{
		Names: record.name, Down: func(id election.ID) bool { return slices.Contains(s.Crashed, id) },
		Lost: func(m *election.Message) bool { return s.Unreachable(m.To) }, Note: record.noteLost,
	}
	for i := range members { // The highest is on the left.
		record.sequence.Order = append(record.sequence.Order, election.ID(len(members)-i)) //nolint:gosec // as above
	}
	s.Watch = record.watch
	outcome, err := sim.Run(s)
	if err != nil {
		return nil, err
	}
	return record.answer(&outcome), nil
}

func ticks(d time.Duration) election.Tick { return election.Tick(d/time.Microsecond) * sim.Microsecond }

func millis(n int32) election.Tick { return election.Tick(n) * sim.Millisecond }

// recorder records a simulation.
type recorder struct {
	scenario *sim.Scenario
	members  []v1.Member
	sequence diagram.SequenceRecorder
	strict   bool
	began    bool
}

func (r *recorder) name(id election.ID) string {
	if id < 1 || int(id) > len(r.members) {
		return "nobody"
	}
	return r.members[id-1].Pod
}

func (r *recorder) noteLost(m *election.Message) string {
	if r.scenario.Unreachable(m.To) {
		return "lost: the receiver is down"
	}
	return ""
}

// watch records a step. It begins when an initiator learns of the crash.
func (r *recorder) watch(step diagram.Step) {
	if !r.began {
		if r.began = step.Input.Kind == election.Suspect; !r.began {
			return
		}
		r.sequence.Start = step.At
	}
	r.sequence.Watch(step)
}

// answer describes the outcome. What happens after the last member has learned of the
// coordinator isn't part of the election.
func (r *recorder) answer(o *sim.Outcome) *Answer {
	a := &Answer{Millis: diagram.Millis(o.Elapsed), Sequence: r.sequence.Sequence()}
	a.Steps = slices.DeleteFunc(a.Steps, func(s diagram.SequenceStep) bool { return s.Millis > a.Millis })
	var kinds []string
	for _, c := range o.Counts() {
		kinds = append(kinds, fmt.Sprintf("%d %s", c.Count, c.Kind))
	}
	a.Cost = fmt.Sprintf("%d messages of the election", o.Total)
	if len(kinds) > 0 {
		a.Cost += ": " + strings.Join(kinds, ", ")
	}
	if o.Skipped > 0 {
		a.Cost += fmt.Sprintf("; %d more to members that are down", o.Skipped)
	}
	if !o.Agreed {
		a.Text = "The members that are up don't agree on a coordinator within a minute."
		return a
	}
	a.Coordinator = r.name(o.Coordinator)
	a.Text = fmt.Sprintf("%s becomes the coordinator: %.3g ms after the crash, all members that are up know it.", a.Coordinator, a.Millis)
	if r.strict {
		a.Text += fmt.Sprintf(" In Strict mode, the lease of the former coordinator ends first: up to %g ms more.", diagram.Millis(r.scenario.Lease))
	}
	return a
}
