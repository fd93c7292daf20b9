package upgrade

import (
	"fmt"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// withoutVote returns why a member can't grant the office yet, or "".
//
// An agent that has restarted doesn't remember what it has granted, so it grants nothing for a
// lease. If two of three members restart within a lease, the coordinator has no majority.
func (s *State) withoutVote(g *v1.ElectionGroup, row *v1.Process) string {
	if g.Spec.Safety.Mode == v1.Available {
		return ""
	}
	// The agent may have joined the group long after it started. Both times are in seconds.
	started := s.agentStarted(row.Pod)
	if row.Since != nil && row.Since.After(started) {
		started = row.Since.Time
	}
	if s.Now.Before(started.Add(longestLease(g) + time.Second)) {
		return fmt.Sprintf("member %s of group %s has restarted and can't vote for another moment", row.Pod, g.Name)
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
	millis := g.Spec.Safety.LeaseMillis
	if list := g.Status.MemberList; list != nil {
		millis = max(millis, list.LeaseMillis)
		if list.Previous != nil {
			millis = max(millis, list.Previous.LeaseMillis)
		}
	}
	return time.Duration(millis) * time.Millisecond
}
