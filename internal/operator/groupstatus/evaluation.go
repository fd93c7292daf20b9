package groupstatus

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// hearing is what has been heard of a group, and what became of it so far.
type evaluation struct {
	Facts
	// members are those of the list, the highest priority first.
	members []v1.Member
	// place is where a member is in members.
	index map[string]int
	// before has the members of the list before, as long as that is in force.
	previous map[string]v1.Member
	// reports are those that count, in the order of their pods' names; reportOf has
	// them by that name.
	reports  []*control.Report
	reportOf map[string]*control.Report
	// unasked: some agent hasn't been asked yet.
	contactPending bool

	coordinator *v1.Coordinator
	last        *v1.LastCoordinator
	rows        []v1.Process
}

func newEvaluation(f Facts) *evaluation {
	h := &evaluation{Facts: f, index: map[string]int{}, previous: map[string]v1.Member{}, reportOf: map[string]*control.Report{}}
	if f.List == nil {
		return h
	}
	h.members = slices.Clone(f.List.Members)
	slices.SortStableFunc(h.members, func(a, b v1.Member) int { return cmp.Compare(b.Priority, a.Priority) })
	for i, m := range h.members {
		h.index[m.Pod] = i
		h.contactPending = h.contactPending || h.awaitingContact(m.Pod)
	}
	if f.List.State == v1.ListAdopting {
		for _, m := range f.List.Previous.Members {
			h.previous[m.Pod] = m
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(f.Agents)) {
		if report := f.Agents[pod].Report; f.Agents[pod].Connected && report != nil && h.relevant(pod, report) {
			h.reports = append(h.reports, report)
			h.reportOf[pod] = report
		}
	}
	return h
}

// skew is how far ahead of the operator's clock an agent's may be. No process
// uses a term that its clock hasn't come to. So one term that is far ahead is
// nonsense, and would be in the status for good.
const maxClockSkew = 24 * time.Hour

// counts reports whether an agent has a say: it speaks of this group, is a
// member by a list that is still in force, and goes by such a list.
func (h *evaluation) relevant(pod string, said *control.Report) bool {
	if said.UID != string(h.Group.UID) || int64(min(said.Term, control.MaxTerm+1)) > control.TermAt(h.Now.Add(maxClockSkew)) {
		return false
	}
	oldest := h.List.Version
	if h.List.State == v1.ListAdopting {
		oldest--
	}
	return int64(said.Version) >= oldest && h.isMember(pod)
}

// inList reports whether a pod is in the list.
func (h *evaluation) inList(pod string) bool {
	_, ok := h.index[pod]
	return ok
}

// isMember reports whether a pod is a member by a list that is still in force.
func (h *evaluation) isMember(pod string) bool {
	_, ok := h.previous[pod]
	return ok || h.inList(pod)
}

// present reports whether a pod is there and hasn't ended.
func (h *evaluation) podExists(name string) bool {
	pod := h.Pods[name]
	return pod != nil && !membership.Finished(pod)
}

// awaitingContact reports whether a pod must have an agent that hasn't been asked.
func (h *evaluation) awaitingContact(name string) bool {
	heard := h.Agents[name]
	return !heard.Connected && heard.Problem == "" && h.podExists(name) && h.shouldHaveAgent(h.Pods[name])
}

// askable reports whether a pod should have an agent that answers.
func (h *evaluation) shouldHaveAgent(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && membership.HasAgent(pod) && membership.NamesGroup(pod, h.Group.Name)
}

// up is how many members are up, as the agents say.
func (h *evaluation) countUp() int {
	count := 0
	for i := range h.rows {
		if isUp(&h.rows[i]) {
			count++
		}
	}
	return count
}

func isUp(row *v1.Process) bool {
	return row.Status == v1.ProcessCoordinator || row.Status == v1.ProcessNormal
}

// patience is how long agents wait for a sign of life.
func (h *evaluation) suspicionTimeout() time.Duration {
	timing := &h.Group.Spec.Timing
	millis := 4 * cmp.Or(timing.HeartbeatMillis, 100)
	return time.Duration(*cmp.Or(timing.PatienceMillis, &millis)) * time.Millisecond
}

// guarded: it takes a majority to lead.
func (h *evaluation) needsMajority() bool { return h.Group.Spec.Safety.Mode != v1.Available }
