package describe

import (
	"fmt"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// ChangeLog describes the changes of a group, each in one line.
type ChangeLog struct {
	last *v1.ElectionGroup
	// started means that Append has been called.
	started bool
	// coordinator is the last coordinator, and vacantSince the time since when the group
	// has had none, according to the calls of Append.
	coordinator string
	vacantSince time.Time
}

// Append returns the changes since the last call. The group is nil if it does not exist.
// The caller provides the time from a clock that does not jump.
func (c *ChangeLog) Append(g *v1.ElectionGroup, at time.Time) []string {
	old, started := c.last, c.started
	c.last, c.started = g, true
	switch {
	case g == nil && (old != nil || !started):
		c.coordinator, c.vacantSince = "", time.Time{}
		if old == nil {
			return []string{"the group does not exist"}
		}
		return []string{"the group was deleted"}
	case g == nil:
		return nil
	case old == nil || old.UID != g.UID:
		c.coordinator, c.vacantSince = "", time.Time{}
		return c.first(g, started, at)
	}
	lines := c.coordinatorChange(old, g, at)
	lines = append(lines, listChange(old, g)...)
	lines = append(lines, rowChanges(old, g)...)
	return append(lines, conditionChanges(old, g)...)
}

// first describes a group that did not exist in the last call.
func (c *ChangeLog) first(g *v1.ElectionGroup, created bool, at time.Time) []string {
	var lines []string
	if created {
		lines = append(lines, "the group was created")
	}
	coordinator := g.Status.Coordinator
	if coordinator == nil {
		c.vacantSince = at
		return append(lines, headline(g, at))
	}
	c.coordinator = coordinator.Pod
	return append(lines, fmt.Sprintf("%s is the coordinator in term %d", coordinator.Pod, coordinator.Term))
}

// coordinatorChange describes a change of the coordinator. The time without coordinator
// is what an agent measured or, if none did, what the status showed.
func (c *ChangeLog) coordinatorChange(old, g *v1.ElectionGroup, at time.Time) []string {
	was, is := old.Status.Coordinator, g.Status.Coordinator
	switch {
	case is == nil && was == nil:
		return nil
	case is == nil:
		c.vacantSince = at
		return []string{fmt.Sprintf("no coordinator: %s was the coordinator in term %d", was.Pod, was.Term)}
	case was != nil && is.Pod == was.Pod && is.Term == was.Term:
		return nil
	}
	if history := g.Status.History; len(history) > 0 && history[0].Term == is.Term && history[0].GapMicros != nil {
		c.coordinator, c.vacantSince = is.Pod, time.Time{}
		return []string{v1.DescribeElection(history)}
	}
	line := fmt.Sprintf("%s became coordinator in term %d", is.Pod, is.Term)
	switch c.coordinator {
	case "":
	case is.Pod:
		line = fmt.Sprintf("%s became coordinator again in term %d", is.Pod, is.Term)
	default:
		line += ", after " + c.coordinator
	}
	if was != nil {
		line += "; the status showed no gap"
	} else if !c.vacantSince.IsZero() {
		line += "; the status showed no coordinator for " + roundGap(at.Sub(c.vacantSince))
	}
	c.coordinator, c.vacantSince = is.Pod, time.Time{}
	return []string{line}
}

// roundGap rounds a duration to the precision of a status that is read through the API
// server.
func roundGap(d time.Duration) string { return d.Round(time.Millisecond).String() }

func listChange(old, g *v1.ElectionGroup) []string {
	was, is := old.Status.Protocol.MemberList, g.Status.Protocol.MemberList
	switch {
	case is == nil || was != nil && was.Version == is.Version && was.State == is.State:
		return nil
	case is.State == v1.ListAdopting:
		return []string{fmt.Sprintf("member list %d with %s is being adopted", is.Version, Count(len(is.Members), "member"))}
	}
	return []string{fmt.Sprintf("member list %d with %s has settled", is.Version, Count(len(is.Members), "member"))}
}

func rowChanges(old, g *v1.ElectionGroup) []string {
	rows := map[string]*v1.Process{}
	for i := range old.Status.Processes {
		rows[old.Status.Processes[i].Pod] = &old.Status.Processes[i]
	}
	var lines []string
	for i := range g.Status.Processes {
		p := &g.Status.Processes[i]
		was := rows[p.Pod]
		delete(rows, p.Pod)
		switch {
		case was == nil:
			lines = append(lines, fmt.Sprintf("%s (%d) is a new member: %s", p.Pod, p.Priority, status(p)))
		case isUp(was) && isUp(p) && was.Reason == p.Reason:
			// The change of the coordinator has its own line.
		case was.Status == p.Status && was.Reason != p.Reason:
			lines = append(lines, fmt.Sprintf("%s is still %s", p.Pod, status(p)))
		case was.Status != p.Status:
			lines = append(lines, fmt.Sprintf("%s is %s, was %s", p.Pod, status(p), was.Status))
		}
	}
	for i := range old.Status.Processes {
		if p := &old.Status.Processes[i]; rows[p.Pod] != nil {
			lines = append(lines, p.Pod+" is no longer a member")
		}
	}
	return lines
}

func conditionChanges(old, g *v1.ElectionGroup) []string {
	var lines []string
	for _, t := range conditionTypes {
		was, is := condition(old, t), condition(g, t)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		line := fmt.Sprintf("%s is %s (%s)", is.Type, is.Status, is.Reason)
		if is.Message != "" {
			line += ": " + is.Message
		}
		lines = append(lines, line)
	}
	return lines
}
