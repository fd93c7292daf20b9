package groupstatus

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// claim is that a pod leads, in a term.
type claim struct {
	pod      string
	term     int64
	priority int32
	// by are the agents that say so.
	by        []string
	electedAt time.Time
}

// claims are what the agents say, the newest first. Of one term, that with the
// higher fencing token.
func (h *hearing) claims() []claim {
	var all []claim
	for _, v := range h.reports {
		priority := h.priority(v.Coordinator)
		if v.Coordinator == "" || v.Term == 0 || priority == 0 {
			continue
		}
		i := slices.IndexFunc(all, func(c claim) bool { return c.pod == v.Coordinator && c.term == int64(v.Term) })
		if i < 0 {
			i = len(all)
			all = append(all, claim{pod: v.Coordinator, term: int64(v.Term), priority: priority, electedAt: v.ElectedAt})
		}
		c := &all[i]
		c.by = append(c.by, v.Pod)
		// The coordinator itself knows best; otherwise, whoever knew first.
		if v.Pod == c.pod || v.ElectedAt.Before(c.electedAt) && c.by[0] != c.pod && !slices.Contains(c.by, c.pod) {
			c.electedAt = v.ElectedAt
		}
	}
	// One alone may lie about a term to come, or have a wrong clock, and a term that
	// is in the status stays; but the wrong clock may be ours.
	soon := membership.CurrentTerm(h.Now.Add(time.Minute))
	all = slices.DeleteFunc(all, func(c claim) bool {
		return h.guarded() && c.term > soon && len(c.by) <= len(h.members)/2
	})
	slices.SortFunc(all, func(a, b claim) int {
		return cmp.Or(cmp.Compare(b.term, a.term), cmp.Compare(b.priority, a.priority), cmp.Compare(a.pod, b.pod))
	})
	return all
}

// priority is that of a member by a list that is in force, 0 if it isn't one.
func (h *hearing) priority(pod string) int32 {
	if i, ok := h.place[pod]; ok {
		return h.members[i].Priority
	}
	return h.before[pod].Priority
}

// elect finds the newest term in which a coordinator was reported, ever, and who
// leads now.
func (h *hearing) elect() (term int64, coordinator *v1.Coordinator) {
	now := &h.Group.Status
	claims := h.claims()
	term = now.Term
	if len(claims) > 0 {
		term = max(term, claims[0].term)
	}
	if was := h.remembered(); was != nil && (len(claims) == 0 || h.guarded() || h.unasked) {
		return term, was
	}
	for _, c := range claims {
		switch {
		case h.guarded() && c.term < term:
			return term, nil // There has been a newer one, so this one's tenure is over.
		case !h.denied(c):
			return term, h.enter(c)
		}
	}
	return term, nil
}

// denied reports whether those who must know say that a claim is over: its
// coordinator itself; or, where it takes a majority to lead, more of those who
// knew it than still believe it.
func (h *hearing) denied(c claim) bool {
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
	return h.guarded() && against > len(c.by)
}

// enter is a claim as it stands in the status.
func (h *hearing) enter(c claim) *v1.Coordinator {
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
func (h *hearing) remembered() *v1.Coordinator {
	was := h.Group.Status.Coordinator
	if was == nil || h.List == nil || !h.present(was.Pod) {
		return nil
	}
	priority := h.priority(was.Pod)
	_, speaks := h.reportOf[was.Pod]
	knows := func(v *control.Report) bool { return int64(v.Term) >= was.Term }
	if priority == 0 || speaks || slices.ContainsFunc(h.reports, knows) {
		return nil
	}
	kept := *was
	kept.Priority = priority
	return &kept
}
