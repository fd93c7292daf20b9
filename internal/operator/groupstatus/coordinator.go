package groupstatus

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// claim is that a pod leads, in a term.
type candidate struct {
	pod      string
	term     int64
	priority int32
	// by are the agents that say so.
	reportedBy []string
	electedAt  time.Time
}

// claims are what the agents say, the newest first. Of one term, that with the
// higher fencing token.
func (h *evaluation) candidates() []candidate {
	var all []candidate
	for _, v := range h.reports {
		priority := h.memberPriority(v.Coordinator)
		if v.Coordinator == "" || v.Term == 0 || priority == 0 {
			continue
		}
		i := slices.IndexFunc(all, func(c candidate) bool { return c.pod == v.Coordinator && c.term == int64(v.Term) })
		if i < 0 {
			i = len(all)
			all = append(all, candidate{pod: v.Coordinator, term: int64(v.Term), priority: priority, electedAt: v.ElectedAt})
		}
		c := &all[i]
		c.reportedBy = append(c.reportedBy, v.Pod)
		// The coordinator itself knows best; otherwise, whoever knew first.
		if v.Pod == c.pod || v.ElectedAt.Before(c.electedAt) && c.reportedBy[0] != c.pod && !slices.Contains(c.reportedBy, c.pod) {
			c.electedAt = v.ElectedAt
		}
	}
	// One alone may lie about a term to come, or have a wrong clock, and a term that
	// is in the status stays; but the wrong clock may be ours.
	soon := control.TermAt(h.Now.Add(time.Minute))
	all = slices.DeleteFunc(all, func(c candidate) bool {
		return h.needsMajority() && c.term > soon && len(c.reportedBy) <= len(h.members)/2
	})
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.term, a.term), cmp.Compare(b.priority, a.priority), cmp.Compare(a.pod, b.pod))
	})
	return all
}

// priority is that of a member by a list that is in force, 0 if it isn't one.
func (h *evaluation) memberPriority(pod string) int32 {
	if i, ok := h.index[pod]; ok {
		return h.members[i].Priority
	}
	return h.previous[pod].Priority
}

// elect finds the newest term in which a coordinator was reported, ever, and who
// leads now.
func (h *evaluation) currentCoordinator() (term int64, coordinator *v1.Coordinator) {
	now := &h.Group.Status
	claims := h.candidates()
	term = now.Term
	if len(claims) > 0 {
		term = max(term, claims[0].term)
	}
	if was := h.retainedCoordinator(); was != nil && (len(claims) == 0 || h.needsMajority() || h.contactPending) {
		return term, was
	}
	for _, c := range claims {
		switch {
		case h.needsMajority() && c.term < term:
			return term, nil // There has been a newer one, so this one's tenure is over.
		case !h.refuted(c):
			return term, h.statusEntry(c)
		}
	}
	return term, nil
}

// denied reports whether those who must know say that a claim is over: its
// coordinator itself; or, where it takes a majority to lead, more of those who
// knew it than still believe it.
func (h *evaluation) refuted(c candidate) bool {
	against := 0
	for _, v := range h.reports {
		if int64(v.Term) < c.term || v.Coordinator == c.pod {
			continue
		}
		if v.Pod == c.pod {
			return true
		}
		if v.Coordinator == "" {
			against++
		}
	}
	return h.needsMajority() && against > len(c.reportedBy)
}

// enter is a claim as it stands in the status.
func (h *evaluation) statusEntry(c candidate) *v1.Coordinator {
	entry := &v1.Coordinator{Pod: c.pod, Priority: c.priority, Term: c.term}
	if was := h.Group.Status.Coordinator; was != nil && was.Pod == c.pod && was.Term == c.term {
		entry.ElectedAt = was.ElectedAt
		return entry
	}
	if c.electedAt.IsZero() {
		c.electedAt = h.Now
	}
	// No more precisely than the API server keeps it.
	entry.ElectedAt = metav1.NewMicroTime(c.electedAt.UTC().Truncate(time.Microsecond))
	return entry
}

// remembered is the coordinator that the agents named last, while none that knows
// of its term speaks: the operator may be cut off, or has just been started. The
// Service keeps leading to it as long as its pod is there. In Available mode, who
// knows of another term has another coordinator.
func (h *evaluation) retainedCoordinator() *v1.Coordinator {
	was := h.Group.Status.Coordinator
	if was == nil || h.List == nil || !h.podExists(was.Pod) {
		return nil
	}
	priority := h.memberPriority(was.Pod)
	_, speaks := h.reportOf[was.Pod]
	knows := func(v *control.Report) bool { return int64(v.Term) >= was.Term }
	if priority == 0 || speaks || slices.ContainsFunc(h.reports, knows) {
		return nil
	}
	kept := *was
	kept.Priority = priority
	return &kept
}
