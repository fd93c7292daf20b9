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
}

// Append returns the changes since the last call. The group is nil if it does not exist.
func (c *ChangeLog) Append(g *v1.ElectionGroup, at time.Time) []string {
	old, started := c.last, c.started
	c.last, c.started = g, true
	switch {
	case g == nil && (old != nil || !started):
		if old == nil {
			return []string{"the group does not exist"}
		}
		return []string{"the group was deleted"}
	case g == nil:
		return nil
	case old == nil || old.UID != g.UID:
		return first(g, started, at)
	}
	lines := coordinatorChange(old, g)
	lines = append(lines, listChange(old, g)...)
	lines = append(lines, rowChanges(old, g)...)
	return append(lines, conditionChanges(old, g)...)
}

// first describes a group that did not exist in the last call.
func first(g *v1.ElectionGroup, created bool, at time.Time) []string {
	var lines []string
	if created {
		lines = append(lines, "the group was created")
	}
	coordinator := g.Status.Coordinator
	if coordinator == nil {
		return append(lines, headline(g, at))
	}
	return append(lines, fmt.Sprintf("%s is the coordinator in term %d", coordinator.Pod, coordinator.Term))
}

// coordinatorChange describes a change of the coordinator. The history says how the tenure before ended.
func coordinatorChange(old, g *v1.ElectionGroup) []string {
	was, is := old.Status.Coordinator, g.Status.Coordinator
	switch {
	case is == nil && was == nil:
		return nil
	case is == nil:
		return []string{fmt.Sprintf("no coordinator: %s was the coordinator in term %d", was.Pod, was.Term)}
	case was != nil && is.Pod == was.Pod && is.Term == was.Term:
		return nil
	}
	if len(g.Status.History) == 0 {
		return []string{fmt.Sprintf("%s became coordinator in term %d", is.Pod, is.Term)}
	}
	return []string{v1.DescribeElection(g.Status.History)}
}

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
