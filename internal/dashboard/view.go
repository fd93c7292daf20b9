// Package dashboard serves a web page with the election groups of a cluster, for one user on this machine.
//
//	API server -> watcher -> Store -> handler -> server-sent events -> page
//
// The page shows what the status of the groups contains. NewSummary and
// NewDetail, which are pure, decide what that is; the page only draws it.
//
// # What is not guaranteed
//
// The server has the permissions of the user who started it. It accepts only requests that name it as localhost, so
// that no web site can read it. But it can't tell apart the users of this machine: each of them can read the groups
// while it runs. Changes need a key, which only the user who started it has seen (Actions).
package dashboard

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
)

// Health is the state of a group in one word.
type Health string

// The states, with the worst first.
const (
	// Unavailable: applications cannot rely on a coordinator.
	Unavailable Health = "Unavailable"
	// Degraded: there is a coordinator, and a problem.
	Degraded Health = "Degraded"
	// Unknown: the operator has not reported the state.
	Unknown Health = "Unknown"
	// Updating: the agents are adopting a new member list or new settings.
	Updating Health = "Updating"
	// Healthy: all members are up.
	Healthy Health = "Healthy"
)

// Summary is what the overview shows of a group.
type Summary struct {
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	Health      Health    `json:"health"`
	Coordinator string    `json:"coordinator,omitempty"`
	Algorithm   string    `json:"algorithm"`
	Members     int32     `json:"members"`
	Up          int32     `json:"up"`
	LastChange  time.Time `json:"lastChange,omitzero"`
	// FlapsUntil is until when the group counts as flapping, unless it fails again. Then the page calls it so.
	FlapsUntil time.Time `json:"flapsUntil,omitzero"`
	// Ended are the ends of tenures by a failure in the last hour, the newest first. EndedMore means that
	// there are earlier ends in this hour, which the status doesn't retain.
	Ended     []time.Time `json:"ended,omitempty"`
	EndedMore bool        `json:"endedMore,omitempty"`
	// Places are the nodes on which members are.
	Places []describe.NodeRow `json:"places,omitempty"`
}

// NewSummary summarizes a group.
func NewSummary(g *v1.ElectionGroup, now time.Time) Summary {
	s := Summary{
		Namespace: g.Namespace, Name: g.Name, Health: healthOf(g), Algorithm: string(g.Spec.Algorithm),
		LastChange: lastChange(g),
		FlapsUntil: describe.FlapsUntil(g, now), Places: describe.NodeTable([]v1.ElectionGroup{*g}),
	}
	s.Up, s.Members = describe.MembersUp(g)
	if c := g.Status.Coordinator; c != nil {
		s.Coordinator = c.Pod
	}
	hourAgo := now.Add(-time.Hour)
	for i := range g.Status.History {
		t := &g.Status.History[i]
		if t.Until != nil && t.Until.After(hourAgo) && t.EndedByFailure() {
			s.Ended = append(s.Ended, t.Until.UTC())
		}
		// Only the oldest tenure that the status retains is the last here.
		s.EndedMore = t.Number > 1 && t.From.After(hourAgo)
	}
	return s
}

func healthOf(g *v1.ElectionGroup) Health {
	has := func(of v1.ConditionType, status metav1.ConditionStatus) bool {
		c := meta.FindStatusCondition(g.Status.Conditions, string(of))
		return c != nil && c.Status == status
	}
	switch {
	case has(v1.ConditionAvailable, metav1.ConditionFalse):
		return Unavailable
	case !has(v1.ConditionAvailable, metav1.ConditionTrue):
		// Without pods or agents, there is no coordinator.
		if has(v1.ConditionAgentsConnected, metav1.ConditionFalse) && g.Status.ReadyMembers != nil &&
			*g.Status.ReadyMembers == 0 {
			return Unavailable
		}
		return Unknown
	case has(v1.ConditionDegraded, metav1.ConditionTrue):
		return Degraded
	case has(v1.ConditionProgressing, metav1.ConditionTrue):
		return Updating
	case has(v1.ConditionReady, metav1.ConditionFalse):
		return Degraded
	}
	return Healthy
}

// lastChange returns when a process, a condition or the coordinator last changed.
func lastChange(g *v1.ElectionGroup) (last time.Time) {
	later := func(t time.Time) {
		if t.After(last) {
			last = t
		}
	}
	if c := g.Status.Coordinator; c != nil {
		later(c.ElectedAt.Time)
	}
	for i := range g.Status.Conditions {
		later(g.Status.Conditions[i].LastTransitionTime.Time)
	}
	for i := range g.Status.Processes {
		if since := g.Status.Processes[i].Since; since != nil {
			later(since.Time)
		}
	}
	return last
}

// Detail is what the page of a group shows.
type Detail struct {
	Summary

	Safety  string `json:"safety"`
	Term    int64  `json:"term,omitempty"`
	Ordinal string `json:"ordinal,omitempty"`
	// ElectedAt is when the tenure of the coordinator began.
	ElectedAt  time.Time `json:"electedAt,omitzero"`
	MemberList int64     `json:"memberList,omitempty"`
	Adopting   bool      `json:"adopting,omitempty"`
	Ring       bool      `json:"ring"`
	// Carried: agents carry the connections of clients.
	Carried  bool               `json:"carried,omitempty"`
	Problems []describe.Problem `json:"problems"`
	Warnings []describe.Problem `json:"warnings,omitempty"`
	// DownTogether says which node or zone the members that are down share.
	DownTogether string `json:"downTogether,omitempty"`
	// Nodes are the members in the picture, in the order of the ring, and Processes the rows of the table.
	Nodes       []v1.Process `json:"nodes"`
	Processes   []v1.Process `json:"processes"`
	Tenures     []Tenure     `json:"tenures"`
	Failovers   *Histogram   `json:"failovers,omitempty"`
	Description string       `json:"description"`
}

// Tenure is an entry of the timeline.
type Tenure struct {
	Number int64     `json:"number"`
	Pod    string    `json:"pod"`
	Term   int64     `json:"term"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until,omitzero"`
	End    string    `json:"end,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Gap    string    `json:"gap,omitempty"`
	// Failure: the tenure ended because something failed.
	Failure bool `json:"failure,omitempty"`
}

// NewDetail describes a group.
func NewDetail(g *v1.ElectionGroup, now time.Time) Detail {
	d := Detail{
		Summary: NewSummary(g, now), Safety: string(g.Spec.Safety.Mode), Term: g.Status.Term, Ring: isRing(g.Spec.Algorithm),
		Problems: describe.Problems(g), Warnings: describe.Warnings(g, now), DownTogether: describe.DownTogether(g),
		Nodes: nodes(g), Processes: append([]v1.Process{}, g.Status.Processes...),
		Tenures: []Tenure{}, Failovers: newHistogram(g.Status.History),
	}
	if c := g.Status.Coordinator; c != nil {
		d.ElectedAt, d.Term = c.ElectedAt.Time, c.Term
		if h := g.Status.History; len(h) > 0 && h[0].Pod == c.Pod && h[0].Term == c.Term {
			d.Ordinal = describe.Ordinal(h[0].Number)
		}
	}
	d.Carried = g.Spec.Service != nil && g.Spec.Service.Via == v1.ViaAgents
	if list := g.Status.Protocol.MemberList; list != nil {
		d.MemberList, d.Adopting = list.Version, list.State == v1.ListAdopting
	}
	for i := range g.Status.History {
		d.Tenures = append(d.Tenures, newTenure(&g.Status.History[i]))
	}
	d.Description = describePicture(&d)
	return d
}

func newTenure(t *v1.Tenure) Tenure {
	view := Tenure{
		Number: t.Number, Pod: t.Pod, Term: t.Term, From: t.From.Time, End: t.DescribeEnd(), Reason: string(t.EndReason),
		Gap: describe.GapBefore(t), Failure: t.EndedByFailure(),
	}
	if t.Until != nil {
		view.Until = t.Until.Time
	}
	return view
}

func isRing(algorithm v1.Algorithm) bool {
	return slices.Contains([]v1.Algorithm{"RingAllIDs", "RingChampion", "RingActiveList", "RingSkip"}, algorithm)
}

// nodes returns the members in the order of the ring, which is that of the member list.
func nodes(g *v1.ElectionGroup) []v1.Process {
	position := map[string]int{}
	if list := g.Status.Protocol.MemberList; list != nil {
		for i := range list.Members {
			position[list.Members[i].Pod] = i
		}
	}
	all := append([]v1.Process{}, g.Status.Processes...)
	slices.SortStableFunc(all, func(a, b v1.Process) int { return cmp.Compare(position[a.Pod], position[b.Pod]) })
	return all
}
