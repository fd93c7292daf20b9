package groupstatus

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// evaluation is the state of one call of Evaluate: the facts, and what has been derived from them so far.
type evaluation struct {
	*facts.Facts
	*membership.Plan
	// members has the members of the list, with the highest priority first.
	members []v1.Member
	// index has the position of each pod in members.
	index map[string]int
	// previous has the members of the previous list while that is still in force.
	previous map[string]v1.Member
	// reports has the relevant reports in the order of their pods' names, and reportOf has them by pod.
	reports  []*control.Report
	reportOf map[string]*control.Report
	// pendingContacts is the number of agents that the operator has not contacted yet, and connected that of the members
	// whose agents are connected, whether or not they have reported.
	pendingContacts, connected int

	coordinator *v1.Coordinator
	rows        []v1.Process
	// lossReportedAt is when the loss of the last coordinator was reported, or nil.
	lossReportedAt *metav1.Time
	// disagrees is about what the agents disagree, or "".
	disagrees v1.Reason
	// minority is about what a minority disagrees with the others, if that is harmless.
	minority finding
}

func newEvaluation(f *facts.Facts, plan *membership.Plan) *evaluation {
	e := &evaluation{
		Facts: f, Plan: plan, index: map[string]int{}, previous: map[string]v1.Member{},
		reportOf: map[string]*control.Report{},
	}
	if e.List == nil {
		return e
	}
	e.members = slices.Clone(e.List.Members)
	slices.SortStableFunc(e.members, func(a, b v1.Member) int { return cmp.Compare(b.Priority, a.Priority) })
	for i, m := range e.members {
		e.index[m.Pod] = i
		if e.isContactPending(m.Pod) {
			e.pendingContacts++
		}
	}
	if e.List.State == v1.ListAdopting {
		for _, m := range e.List.Previous.Members {
			e.previous[m.Pod] = m
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(f.Agents)) {
		if f.Agents[pod].Connected && e.isMember(pod) {
			e.connected++
		}
		if report := f.Agents[pod].Report; f.Agents[pod].Connected && report != nil && e.isRelevant(pod, report) {
			e.reports = append(e.reports, report)
			e.reportOf[pod] = report
		}
	}
	return e
}

// isRelevant reports whether a report counts: it is about this group, its pod is a member according to a list that is
// still in force, and its agent uses such a list. No list that the agent can know has a term above those of the newest
// one: such a term must not get into the status, where it would remain.
func (e *evaluation) isRelevant(pod string, report *control.Report) bool {
	oldest, newest := e.List.Version, max(e.List.Version, int64(report.Version))
	if e.List.State == v1.ListAdopting {
		oldest = e.List.Previous.Version
	}
	return report.UID == string(e.Group.UID) && e.isMember(pod) && int64(report.Version) >= oldest &&
		!e.usesUnknownList(report) && report.Term>>memberlist.CounterBits <= uint64(newest)
}

// usesUnknownList reports whether an agent reports a list that the operator hasn't
// published, while a majority contradicts it.
func (e *evaluation) usesUnknownList(report *control.Report) bool {
	return int64(report.Version) > e.List.Version && !e.StatusBehind
}

// inList reports whether a pod is in the newest list.
func (e *evaluation) inList(pod string) bool {
	_, ok := e.index[pod]
	return ok
}

// isMember reports whether a pod is in a list that is still in force.
func (e *evaluation) isMember(pod string) bool {
	_, ok := e.previous[pod]
	return ok || e.inList(pod)
}

// podExists reports whether a pod exists and has not finished.
func (e *evaluation) podExists(name string) bool {
	pod := e.Pods[name]
	return pod != nil && !membership.Finished(pod)
}

// isContactPending reports whether a pod should have an agent that the operator has not contacted yet.
func (e *evaluation) isContactPending(name string) bool {
	agent, pod := e.Agents[name], e.Pods[name]
	return !agent.Connected && agent.Problem == "" && pod != nil && pod.Status.Phase == corev1.PodRunning &&
		membership.HasAgent(pod) && membership.OptedIn(pod) && membership.NamesGroup(pod, e.Group.Name)
}

// down returns the members that aren't up.
func (e *evaluation) down() (pods []string) {
	for i := range e.rows {
		if !isUp(&e.rows[i]) {
			pods = append(pods, e.rows[i].Pod)
		}
	}
	return pods
}

func isUp(row *v1.Process) bool {
	return row.Status == v1.ProcessCoordinator || row.Status == v1.ProcessNormal
}

// needsMajority reports whether a coordinator needs a majority of the members.
func (e *evaluation) needsMajority() bool { return e.Group.Spec.Safety.Mode != v1.Available }
