// Package decide decides what the operator does about a group: Step derives actions from what has been read, and from
// what earlier steps have left in memory. It is pure. Package controllers reads the facts, and applies the actions in
// the order of their fields.
//
//	facts.Facts --> membership.MakePlan ---> groupstatus.Evaluate ---> Actions
//	Memory     /    list, document, Service   status, labels, events \-> Memory
//
// What a reconcile left undone, because a write failed or the operator crashed, the next one does: the actions are the
// difference between the facts and what should be. So they don't repeat what the facts already show.
package decide

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// Memory is what one step leaves for the next: since when something has been so, and what has been done already. An
// operator that starts has none, so the waits begin again. Nobody changes what a Memory refers to.
type Memory struct {
	// MissingSince is since when members have had no pod, while MissingVersion has been in force.
	MissingSince   map[string]time.Time
	MissingVersion int64
	// Retired has the identities that agents have given up, by the names of their pods: see control.Report.
	Retired map[string]string
	// MajorityLostAt is since when no majority of the members has been connected; zero if one is.
	MajorityLostAt time.Time
	// WitnessLostAt is since when a witness hasn't been connected; zero if all are, or if there is none.
	WitnessLostAt time.Time
	// FirstConnected is when the first agent connected.
	FirstConnected time.Time
	// Revision is the highest known one. An agent that leaves an earlier group of the same name accepts only newer
	// documents, but doesn't report that revision anymore.
	Revision int64
	// Published is the newest document that was in the status. A restored backup has an older one.
	Published *v1.PublishedDocument
	// VacantSince is since when there has been no coordinator.
	VacantSince time.Time
	// LatestChange is the newest ChangedAt of the reports that are in the status.
	LatestChange time.Time
	Standby      Standby
}

// Actions is what to do, in this order.
type Actions struct {
	// Verify has the pods to whose agents the connection has to be verified.
	Verify []string
	// Read has what must be read, and Hold the pods that need the finalizer of the group, before the rest can be decided.
	// The others are the actions of the next step, which has the result as a fact.
	Read *Read
	Hold []*corev1.Pod

	// Gauges describe the group, whether or not its status can be written.
	Gauges Gauges
	// Release has the pods from which the finalizer has to be removed.
	Release []*corev1.Pod
	// Commands are for agents. They wait for no write.
	Commands []Command
	// Status is nil if it doesn't change. Limit says how often it may. What follows is only for a group with this status.
	Status *v1.ElectionGroupStatus
	Limit  Limit
	// Document is what agents need that have an older one, or nil. If Publishes, the status has it for the first time.
	Document  *Document
	Publishes bool
	// Traffic is nil if a standby leaves it to the leader.
	Traffic  *Traffic
	Measures Measures
	// WakeAt is the time of the next step if no fact changes before; zero if none is needed.
	WakeAt time.Time
}

// Read is what a step asks for: whether the API server has another group or spec, pods, and the witnesses.
type Read struct {
	Group, Witnesses bool
	Pods             []string
}

// Limit is one of the limits of writes of a status.
type Limit int

// The limits. Elections have their own, so that other changes don't delay them. A user's change has none.
const (
	NoLimit Limit = iota
	LimitChanges
	LimitElections
)

// Traffic is what makes traffic follow the status.
type Traffic struct {
	Plan *membership.Plan
	// Coordinator is the pod that the Service points at, or "". KeepsEndpoint means that it still points at the former
	// one.
	Coordinator   string
	KeepsEndpoint bool
	// Demotions precede Labels: no selector must find two coordinators.
	Demotions, Labels []Label
	Events            []groupstatus.Event
}

// vacancyMax is how long a Service points at the former coordinator while there is none. Usually, the next one is
// elected sooner. kube-proxy applies a change at once, but the next change a second later: that would be the next
// coordinator.
const vacancyMax = 500 * time.Millisecond

// uncachedPodRecheck is how often a step reads a pod whose absence is about to count.
const uncachedPodRecheck = time.Second

// step is one step while it is made.
type step struct {
	*facts.Facts
	Memory
	Actions
}

// Step decides what to do next.
func Step(known *facts.Facts, memory Memory) (Actions, Memory) {
	s := &step{Facts: known, Memory: memory}
	s.Verify = s.suspects()
	if !s.Leads() && !s.leaderIsLate() {
		return s.Actions, s.Memory
	}
	if read := s.toRead(); read != nil {
		return Actions{Verify: s.Verify, Read: read}, memory
	}
	plan := membership.MakePlan(s.Facts, s.waits())
	if plan.NeedsWitnesses {
		return Actions{Verify: s.Verify, Read: &Read{Witnesses: true}}, memory
	}
	if s.HoldFailed || plan.Document == nil {
		plan.List, plan.Document = s.MemberList(), nil
	}
	result := groupstatus.Evaluate(s.Facts, &plan)
	switch {
	case !s.Leads() && !s.leaderMissesChange(&result):
		s.finish(&plan, &result)
		return s.Actions, s.Memory
	case len(plan.Hold) > 0 && !s.HoldTried:
		return Actions{Verify: s.Verify, Hold: plan.Hold}, memory
	}
	s.WakeAt = facts.Earliest(s.WakeAt, facts.Earliest(plan.RequeueAt, result.RequeueAt))
	s.Gauges, s.Measures = s.gauges(&result), s.measure(&result)
	s.Release = plan.Release
	s.publish(&plan, &result)
	s.command(&plan, &result)
	s.route(&plan, &result)
	if !s.Leads() {
		s.WakeAt = time.Time{} // The leader wakes.
		s.MajorityLostAt, s.WitnessLostAt = time.Time{}, time.Time{}
	}
	return s.Actions, s.Memory
}

// reached reports whether a time has come. If not, the next step is at that time at the latest.
func (s *step) reached(at time.Time) bool {
	if !s.Now.Before(at) {
		return true
	}
	s.WakeAt = facts.Earliest(s.WakeAt, at)
	return false
}

// publish decides about the status and the document. The status has each list and document before any agent has it.
func (s *step) publish(plan *membership.Plan, result *groupstatus.Result) {
	was, next := &s.Group.Status, &result.Status
	if plan.Document != nil {
		published := *was
		published.Protocol.MemberList, published.Protocol.Document = plan.List, &plan.Published
		s.Publishes = !sameStatus(was, &published)
		next.Protocol.Document = &plan.Published
		s.Document = s.document(plan)
	}
	if s.Errors.Status != "" {
		next = groupstatus.Refused(s.Facts, next.Protocol)
	}
	if sameStatus(was, next) {
		return
	}
	s.Status = next
	switch {
	case s.Errors.Status != "" || s.Publishes && !isFromAgents(was.Protocol.MemberList, plan.List):
		s.Limit = NoLimit
	case was.Term != next.Term || !facts.SameTenure(was.Coordinator, next.Coordinator):
		s.Limit = LimitElections
	default:
		s.Limit = LimitChanges
	}
}

// route decides what makes traffic follow the coordinator.
func (s *step) route(plan *membership.Plan, result *groupstatus.Result) {
	s.Traffic = &Traffic{Plan: plan, Coordinator: result.Coordinator}
	s.Traffic.Demotions, s.Traffic.Labels = s.labels(result.Roles)
	if s.Errors.Status == "" {
		s.Traffic.Events = result.Events
	}
	if result.Status.Coordinator == nil && s.Leads() && s.VacantSince.IsZero() {
		s.VacantSince = s.Now
	}
	s.Traffic.KeepsEndpoint = result.Coordinator == "" && !s.reached(s.VacantSince.Add(vacancyMax))
}

// Applied returns the memory after the status of actions has been written, or if they have none.
func (m Memory) Applied(known *facts.Facts, done *Actions) Memory {
	was, is := known.Group.Status.Coordinator, known.Group.Status.Coordinator
	if done.Status != nil {
		is = done.Status.Coordinator
	}
	if !known.Leads() {
		m.Standby = m.Standby.applied(was, is)
		return m
	}
	if is != nil {
		m.VacantSince = time.Time{}
	}
	if last := done.Measures.LastChange; last.After(m.LatestChange) {
		m.LatestChange = last
	}
	return m
}

// sameStatus compares statuses as JSON, where times have a precision of a second or a microsecond.
func sameStatus(a, b *v1.ElectionGroupStatus) bool { return bytes.Equal(encode(a), encode(b)) }

func encode(status *v1.ElectionGroupStatus) []byte {
	text, err := json.Marshal(status)
	if err != nil {
		panic(fmt.Sprintf("cannot encode a status: %v", err))
	}
	return text
}
