package decide

import (
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

const grace = 500 * time.Millisecond

// newStandby returns a standby of a healthy group.
func newStandby() *operator {
	o := newElectedOperator()
	o.memory, o.LeaderGrace = Memory{}, grace
	o.apply()
	o.Now = o.Now.Add(time.Minute)
	return o
}

// acts reports whether a step of the standby writes the status.
func (o *operator) acts() bool { return o.apply().Status != nil }

// A standby writes what the leader is late with: an election, or a loss for which there is evidence. Nothing else.
func TestStandbyWritesWhatTheLeaderIsLateWith(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*operator)
		behind bool // it waits for the leader
		late   bool // it writes in its place
	}{
		"nothing":     {func(*operator) {}, false, false},
		"an edit":     {func(o *operator) { o.Group.Spec.Members = o.Group.Spec.Members[1:] }, false, false},
		"a row":       {func(o *operator) { o.Agents["a"].Report.Eligible = false }, false, false},
		"an election": {func(o *operator) { o.elect("b", firstTerm+1, "a", "b", "c") }, true, true},
		"a loss":      {func(o *operator) { o.elect("", firstTerm, "a", "b", "c") }, true, true},
		"a loss while the coordinator isn't connected": {func(o *operator) {
			o.elect("", firstTerm, "a", "b")
			o.Agents["c"] = facts.Agent{Problem: "refused"}
		}, true, true},
		"one agent without a coordinator":    {func(o *operator) { o.elect("", firstTerm, "a") }, true, false},
		"one agent with another coordinator": {func(o *operator) { o.elect("a", firstTerm+1, "a") }, true, false},
		"an agent of an earlier term":        {func(o *operator) { o.elect("", firstTerm-1, "a", "b") }, false, false},
		"no agent is connected":              {func(o *operator) { clear(o.Agents) }, false, false},
		"an agent of an earlier group": {func(o *operator) {
			o.elect("b", firstTerm+9, "a")
			o.Agents["a"].Report.UID = "x"
		}, false, false},
		"the coordinator in the status is new": {func(o *operator) { o.Group.Status.Coordinator = nil }, false, false},
	} {
		o := newStandby()
		c.change(o)
		actions := o.apply()
		expect.Equalf(t, actions.Traffic != nil, false, "%s: it acts at once", name)
		if wakes := !actions.WakeAt.IsZero(); wakes != c.behind || wakes && actions.WakeAt.Sub(o.Now) != grace {
			t.Errorf("%s: got it waking %s later, want %t", name, actions.WakeAt.Sub(o.Now), c.behind)
		}
		o.Now = o.Now.Add(grace - 1)
		expect.Equalf(t, o.acts(), false, "%s: it writes before the grace is over", name)
		o.Now = o.Now.Add(1)
		expect.Equalf(t, o.acts(), c.late, "%s: it writes after the grace", name)
		o.Now = o.Now.Add(time.Hour)
		expect.Equalf(t, o.acts(), false, "%s: it writes twice", name)
	}
}

// Another replica, which hears other agents, may disagree. They don't overwrite each other forever: in each term, a
// standby writes one loss, and once that it was wrong.
func TestStandbyWritesOncePerTerm(t *testing.T) {
	o := newStandby()
	writes := func() (count int) {
		for range 4 {
			o.Now = o.Now.Add(grace)
			if o.acts() {
				count++
			}
		}
		return count
	}
	elected := o.Group.Status.Coordinator
	overwrite := func(c *v1.Coordinator) {
		o.Group = o.Group.DeepCopy()
		o.Group.Status.Coordinator = c
	}
	o.elect("", firstTerm, "a", "b", "c")
	expect.Equalf(t, writes(), 1, "writes of the loss")
	overwrite(elected)
	expect.Equalf(t, writes(), 0, "writes of the same loss again")
	o.elect("a", firstTerm+1, "a")
	expect.Equalf(t, writes(), 0, "writes of it when one agent is ahead")
	overwrite(nil)
	o.elect("c", firstTerm, "a", "b", "c")
	expect.Equalf(t, writes(), 1, "writes that the loss was wrong")
	overwrite(nil)
	expect.Equalf(t, writes(), 0, "writes of that again")
	o.elect("a", firstTerm+1, "a", "b", "c")
	expect.Equalf(t, writes(), 1, "writes of the next election")
	o.elect("", firstTerm+1, "a", "b", "c")
	expect.Equalf(t, writes(), 1, "writes of the next loss")
}

// A write after the status failed. The standby repeats what follows from the status, and doesn't act as the leader
// meanwhile.
func TestStandbyFinishesOnlyTraffic(t *testing.T) {
	o := newStandby()
	o.elect("b", firstTerm+1, "a", "b", "c")
	o.apply()
	o.Now = o.Now.Add(grace)
	actions := o.step()
	o.memory = o.memory.Applied(&o.Facts, &actions)
	o.Group.Status = *actions.Status.DeepCopy()
	o.memory.Standby.Unfinished = true
	o.Group.Spec.Algorithm, o.Group.Generation = v1.Bully, 2
	actions = o.step()
	if actions.Traffic == nil || actions.Traffic.Coordinator != "b" || actions.Status != nil || actions.Document != nil {
		t.Errorf("got %+v, want only the traffic", actions)
	}
	expect.Equalf(t, o.step().Traffic == nil, true, "after that, it does nothing")
	o.memory.Standby.Unfinished = true
	o.Group.Status.Coordinator = nil
	expect.Equalf(t, o.step().Traffic == nil, true, "the leader has decided otherwise meanwhile, so it does nothing")
}
