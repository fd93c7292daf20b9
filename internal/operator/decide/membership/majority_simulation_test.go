package membership

import (
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// The part of the simulation that is about lists that wait for a majority: operators that
// aren't connected to any agent for some time, and what they must not publish.

// majorityGrace is the simulation's MajorityGrace, and maxCutOff the longest time without
// connections that must not matter.
const (
	majorityGrace = 2 * time.Second
	maxCutOff     = 1900 * time.Millisecond
)

// cutOff ends an operator's connections to all agents for some time, unless no majority was
// connected before: then the operator can't know that a majority is up again.
func (s *simulation) cutOff(o *operator) {
	if !o.majorityLostAt.IsZero() {
		return
	}
	o.cutOffUntil = s.now.Add(time.Duration(s.rng.Int64N(int64(maxCutOff))))
}

// isConnected reports whether an operator is connected to the agent of a pod.
func (s *simulation) isConnected(o *operator, name string) bool {
	a := s.agent(name)
	return a != nil && a.connected && !s.now.Before(o.cutOffUntil)
}

// observeMajority is what an operator does whenever an agent is connected or disconnected: it
// notes since when no majority of the members has been connected.
func (s *simulation) observeMajority(o *operator) {
	list := o.group.Status.Protocol.MemberList
	if list == nil {
		return
	}
	up := map[string]bool{}
	for _, name := range allNames {
		up[name] = s.isConnected(o, name)
	}
	if hasMajority(list.Members, up) {
		o.majorityLostAt = time.Time{}
	} else if o.majorityLostAt.IsZero() {
		o.majorityLostAt = s.now
	}
}

// upAndConnected returns the pods that are up, and connected to an operator that isn't cut off.
func (s *simulation) upAndConnected() map[string]bool {
	up := map[string]bool{}
	for _, name := range allNames {
		a := s.agent(name)
		up[name] = a != nil && a.connected
	}
	return up
}

func hasMajority(members []v1.Member, up map[string]bool) bool {
	count := 0
	for _, m := range members {
		if up[m.Pod] {
			count++
		}
	}
	return count > len(members)/2
}

// checkMajority checks that an operator didn't publish a list that costs the group its
// coordinator: when it decided, the list before had a majority, and this one had none.
func (s *simulation) checkMajority(o *operator, before, list *v1.MemberList) {
	if before == nil || list.Version == before.Version || samePods(before.Members, list.Members) {
		return
	}
	if hasMajority(before.Members, o.up) && !hasMajority(list.Members, o.up) {
		s.t.Errorf("got list %s, which has no majority, while the one before has one: %s", formatList(list), formatMembers(before.Members))
	}
}
