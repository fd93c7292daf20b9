package describe

import (
	"fmt"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// ChangeLog tells the changes of a group, a line for each. It is told the group
// whenever it has changed, and when: a clock that doesn't jump is the caller's.
type ChangeLog struct {
	last *v1.ElectionGroup
	// begun: it has been told the group, or that there is none.
	begun bool
	// led last, in which term, and since when nobody has: as far as it was told.
	leader string
	vacant time.Time
}

// Append says what has changed since the last time. There is no group if it is nil.
func (c *ChangeLog) Append(g *v1.ElectionGroup, at time.Time) []string {
	before, begun := c.last, c.begun
	c.last, c.begun = g, true
	switch {
	case g == nil && (before != nil || !begun):
		c.leader, c.vacant = "", time.Time{}
		if before == nil {
			return []string{"there is no such group"}
		}
		return []string{"the group has been deleted"}
	case g == nil:
		return nil
	case before == nil || before.UID != g.UID:
		c.leader, c.vacant = "", time.Time{}
		return c.first(g, begun, at)
	}
	lines := c.office(before, g, at)
	lines = append(lines, listChange(before, g)...)
	lines = append(lines, rowChanges(before, g)...)
	return append(lines, conditionChanges(before, g)...)
}

// first tells a group that wasn't there before.
func (c *ChangeLog) first(g *v1.ElectionGroup, made bool, at time.Time) []string {
	var lines []string
	if made {
		lines = append(lines, "the group has been made")
	}
	leader := g.Status.Coordinator
	if leader == nil {
		c.vacant = at
		return append(lines, headline(g, at))
	}
	c.leader = leader.Pod
	return append(lines, fmt.Sprintf("%s leads in term %d", leader.Pod, leader.Term))
}

// office tells who leads now. How long nobody did is what the status showed: the
// agents know better, but each of them only for itself.
func (c *ChangeLog) office(before, g *v1.ElectionGroup, at time.Time) []string {
	was, is := before.Status.Coordinator, g.Status.Coordinator
	switch {
	case is == nil && was == nil:
		return nil
	case is == nil:
		c.vacant = at
		return []string{fmt.Sprintf("nobody leads: %s did, in term %d", was.Pod, was.Term)}
	case was != nil && is.Pod == was.Pod && is.Term == was.Term:
		return nil
	}
	line := fmt.Sprintf("%s leads in term %d", is.Pod, is.Term)
	switch {
	case was != nil && was.Pod == is.Pod:
		line += " as before, elected anew"
	case c.leader == "":
	case c.leader == is.Pod:
		line += " again"
	default:
		line += ", after " + c.leader
	}
	if was != nil {
		line += "; the status showed no gap"
	} else if !c.vacant.IsZero() {
		line += "; nobody led for " + gap(at.Sub(c.vacant)) + ", as the status showed it"
	}
	c.leader, c.vacant = is.Pod, time.Time{}
	return []string{line}
}

// gap is rounded to what a status that travels through the API server is good for.
func gap(d time.Duration) string { return d.Round(time.Millisecond).String() }

func listChange(before, g *v1.ElectionGroup) []string {
	was, is := before.Status.MemberList, g.Status.MemberList
	switch {
	case is == nil || was != nil && was.Version == is.Version && was.State == is.State:
		return nil
	case is.State == v1.ListAdopting:
		return []string{fmt.Sprintf("member list %d, of %s, is being adopted", is.Version, counted(len(is.Members)))}
	}
	return []string{fmt.Sprintf("member list %d, of %s, is in force", is.Version, counted(len(is.Members)))}
}

func rowChanges(before, g *v1.ElectionGroup) []string {
	was := map[string]*v1.Process{}
	for i := range before.Status.Processes {
		was[before.Status.Processes[i].Pod] = &before.Status.Processes[i]
	}
	var lines []string
	for i := range g.Status.Processes {
		p := &g.Status.Processes[i]
		old := was[p.Pod]
		delete(was, p.Pod)
		switch {
		case old == nil:
			lines = append(lines, fmt.Sprintf("%s (%d) is a member: %s", p.Pod, p.Priority, status(p)))
		case up(old) && up(p) && old.Reason == p.Reason:
			// Who leads has been told.
		case old.Status != p.Status || old.Reason != p.Reason:
			lines = append(lines, fmt.Sprintf("%s is %s, and was %s", p.Pod, status(p), old.Status))
		}
	}
	for i := range before.Status.Processes {
		if p := &before.Status.Processes[i]; was[p.Pod] != nil {
			lines = append(lines, p.Pod+" is no member any more")
		}
	}
	return lines
}

func conditionChanges(before, g *v1.ElectionGroup) []string {
	var lines []string
	for _, t := range order {
		was, is := condition(before, t), condition(g, t)
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
