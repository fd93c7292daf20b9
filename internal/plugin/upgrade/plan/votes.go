package plan

import (
	"fmt"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// withoutVote returns which member of a group can't grant the office yet, or "". It ignores one
// member.
//
// An agent in a new pod doesn't remember what its predecessor granted, so it grants nothing for a
// lease. One that has restarted in its pod probably does, but nothing tells from outside. If the next member restarts meanwhile, two of three members don't vote.
func (s *State) withoutVote(g *v1.ElectionGroup, except string) string {
	if g.Spec.Safety.Mode == v1.Available {
		return ""
	}
	for i := range g.Status.Processes {
		row := &g.Status.Processes[i]
		if row.Pod == except {
			continue
		}
		// The agent may have joined the group long after it started. Both times are in seconds.
		started := s.agentStarted(row.Pod)
		if row.Since != nil && row.Since.After(started) {
			started = row.Since.Time
		}
		if s.Now.Before(started.Add(longestLease(g) + time.Second)) {
			return fmt.Sprintf("member %s of group %s has restarted and can't vote for another moment", row.Pod, g.Name)
		}
	}
	return ""
}

// agentStarted returns when the agent in a pod was started, or zero.
func (s *State) agentStarted(pod string) time.Time {
	for i := range s.Pods {
		if s.Pods[i].Name != pod {
			continue
		}
		for _, c := range s.Pods[i].Status.InitContainerStatuses {
			if c.Name == v1.AgentContainer && c.State.Running != nil {
				return c.State.Running.StartedAt.Time
			}
		}
	}
	return time.Time{}
}

// longestLease returns the longest lease that is in force.
func longestLease(g *v1.ElectionGroup) time.Duration {
	millis := control.LongestLeaseMillis(g.Spec.Safety.LeaseMillis)
	if list := g.Status.MemberList; list != nil {
		millis = max(millis, list.LeaseMillis)
		if list.Previous != nil {
			millis = max(millis, list.Previous.LeaseMillis)
		}
	}
	return time.Duration(millis) * time.Millisecond
}
