package groupstatus

import (
	"cmp"
	"slices"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
)

// candidate is a coordinator that agents report.
type candidate struct {
	v1.Coordinator

	// reportedBy lists the pods whose agents report it.
	reportedBy []string
}

// candidates returns the coordinators that the agents report, with the newest first.
// Candidates of the same term are in the order of their fencing tokens.
func (e *evaluation) candidates() []candidate {
	var all []candidate
	for _, r := range e.reports {
		priority := e.memberPriority(r.Coordinator)
		if r.Coordinator == "" || r.Term == 0 || priority == 0 {
			continue
		}
		i := slices.IndexFunc(all, func(c candidate) bool { return c.Pod == r.Coordinator && c.Term == int64(r.Term) })
		if i < 0 {
			i = len(all)
			all = append(all, candidate{Coordinator: v1.Coordinator{
				Pod: r.Coordinator, Priority: priority, Term: int64(r.Term), ElectedAt: inMicros(r.ElectedAt),
			}})
		}
		c := &all[i]
		c.reportedBy = append(c.reportedBy, r.Pod)
		// Prefer the time that the coordinator itself reports, and then the earliest one.
		if r.Pod == c.Pod || r.ElectedAt.Before(c.ElectedAt.Time) && !slices.Contains(c.reportedBy, c.Pod) {
			c.ElectedAt = inMicros(r.ElectedAt)
		}
	}
	all = slices.DeleteFunc(all, func(c candidate) bool { return !e.isConfirmed(c) })
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.Term, a.Term), cmp.Compare(e.ringPlace(b.Pod), e.ringPlace(a.Pod)))
	})
	return all
}

// ringPlace returns the place of a member in its list. Fencing tokens of the same term are in this order.
func (e *evaluation) ringPlace(pod string) int {
	of := e.List.Members
	if !e.inList(pod) {
		of = e.List.Previous.Members
	}
	return slices.IndexFunc(of, func(m v1.Member) bool { return m.Pod == pod })
}

// isConfirmed reports whether enough agents report a candidate. A single agent that lies must not
// get another coordinator or a newer term into the status: the term would remain, and exclude the
// tenures of honest members under the same list.
//
// A coordinator that needs a majority has one, and its members report it as soon as their heartbeats are answered. So
// the operator waits for the majority of those that are connected, including those that it is about to contact.
// Otherwise, whoever reports first would be believed alone.
func (e *evaluation) isConfirmed(c candidate) bool {
	return !e.needsMajority() || facts.SameTenure(e.Group.Status.Coordinator, &c.Coordinator) ||
		e.isMajority(len(c.reportedBy))
}

// isMajority reports whether a number of agents is a majority of those that are connected, or that the operator is
// about to contact.
func (e *evaluation) isMajority(agents int) bool {
	return agents > (e.connected+e.pendingContacts)/2
}

// memberPriority returns the priority of a member of a list that is in force, 0 for other pods.
func (e *evaluation) memberPriority(pod string) int32 {
	if i, ok := e.index[pod]; ok {
		return e.members[i].Priority
	}
	return e.previous[pod].Priority
}

// currentCoordinator returns the newest term in which a coordinator has ever been
// reported, and the coordinator, or nil if there is none.
func (e *evaluation) currentCoordinator() (term int64, coordinator *v1.Coordinator) {
	status := &e.Group.Status
	candidates := e.candidates()
	term = status.Term
	if len(candidates) > 0 {
		term = max(term, candidates[0].Term)
	}
	if retained := e.retainedCoordinator(); retained != nil &&
		(len(candidates) == 0 || e.needsMajority() || e.pendingContacts > 0) {
		return term, retained
	}
	for _, c := range candidates {
		switch {
		case e.needsMajority() && c.Term < term:
			return term, nil // There has been a newer coordinator, so this tenure has ended.
		case !e.refuted(c):
			return term, e.statusEntry(c)
		}
	}
	return term, nil
}

// refuted reports whether a candidate's tenure has ended according to its own agent, or,
// where a coordinator needs a majority, to more agents than those that still report it.
func (e *evaluation) refuted(c candidate) bool {
	against := 0
	for _, r := range e.reports {
		if int64(r.Term) < c.Term || r.Coordinator == c.Pod {
			continue
		}
		if r.Pod == c.Pod {
			return true
		}
		if r.Coordinator == "" {
			against++
		}
	}
	return e.needsMajority() && against > len(c.reportedBy)
}

// maxClockSkew is how far the time of an election may be ahead of the operator's clock.
const maxClockSkew = 24 * time.Hour

// statusEntry returns the entry of a candidate in the status.
func (e *evaluation) statusEntry(c candidate) *v1.Coordinator {
	if old := e.Group.Status.Coordinator; facts.SameTenure(old, &c.Coordinator) {
		c.ElectedAt = old.ElectedAt
	} else if at := c.ElectedAt.Time; at.Before(e.Group.CreationTimestamp.Add(-maxClockSkew)) ||
		at.After(e.Now.Add(maxClockSkew)) {
		// An agent whose clock is wrong, or that lies, may report any time. Only the display depends on it.
		c.ElectedAt = inMicros(e.Now)
	}
	return &c.Coordinator
}

// retainedCoordinator returns the coordinator in the status if too few connected agents know of its term: the operator
// may be disconnected, or may just have started, or another replica wrote the status from newer reports. The Service
// continues to point at this coordinator as long as its pod exists. In Available mode, an agent that knows of another
// term has another coordinator.
func (e *evaluation) retainedCoordinator() *v1.Coordinator {
	old := e.Group.Status.Coordinator
	if old == nil || e.List == nil || !e.podExists(old.Pod) {
		return nil
	}
	priority := e.memberPriority(old.Pod)
	own, reports := e.reportOf[old.Pod]
	if reports && e.needsMajority() && int64(own.Term) < old.Term && !own.ChangedAt.IsZero() &&
		own.ChangedAt.Before(old.ElectedAt.Time) {
		reports = false // The agent made this report before its tenure began.
	}
	know := 0
	for _, r := range e.reports {
		if int64(r.Term) >= old.Term {
			know++
		}
	}
	if priority == 0 || reports || e.isMajority(know) || know > 0 && !e.needsMajority() {
		return nil
	}
	retained := *old
	retained.Priority = priority
	return &retained
}
