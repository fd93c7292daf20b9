package groupstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// side is a set of agents that report the same value.
type side struct {
	value string
	order int64
	pods  []string
}

// sides groups the agents by the values that they report, with the highest order first.
// Agents with an empty value are left out.
func (e *evaluation) sides(valueOf func(*control.Report) (value string, order int64)) []side {
	var all []side
	index := map[string]int{}
	for _, r := range e.reports {
		value, order := valueOf(r)
		if value == "" {
			continue
		}
		i, ok := index[value]
		if !ok {
			i = len(all)
			index[value] = i
			all = append(all, side{value: value})
		}
		all[i].order = max(all[i].order, order)
		all[i].pods = append(all[i].pods, r.Pod)
	}
	slices.SortFunc(all, func(a, b side) int {
		return cmp.Or(cmp.Compare(b.order, a.order), cmp.Compare(len(b.pods), len(a.pods)),
			strings.Compare(a.pods[0], b.pods[0]))
	})
	return all
}

// describeSides describes the first few sides.
func describeSides(all []side, describe func(side) string) string {
	const most = 3
	var parts []string
	for _, s := range all[:min(most, len(all))] {
		parts = append(parts, describe(s))
	}
	if n := len(all) - most; n > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(parts, "; ")
}

// disagreement returns about what the agents disagree, and the time of the next evaluation.
func (e *evaluation) disagreement() (found finding, requeueAt time.Time) {
	if len(e.reports) > 0 {
		found, requeueAt = e.coordinatorsDiffer()
		found = cmp.Or(found, e.unknownLists(), e.listsDiffer(), e.settingsDiffer())
	}
	// An agent that has not been contacted may still be in its previous state.
	if old := e.oldDisagreement(); e.pendingContacts > 0 && (found.reason == "" || found.reason == old.reason) {
		return old, requeueAt
	}
	return found, requeueAt
}

// harmless makes a finding no problem if a majority agrees: one member that lies, or is cut off, doesn't block
// rollouts. Without grants of a majority, each coordinator that a member names may lead.
func (e *evaluation) harmless(found finding, agree int) finding {
	if e.needsMajority() && e.coordinator != nil && agree > len(e.members)/2 {
		found.status = metav1.ConditionTrue
	}
	return found
}

// oldDisagreement returns about what the agents disagree according to the status.
func (e *evaluation) oldDisagreement() finding {
	for _, of := range []v1.ConditionType{v1.ConditionAvailable, v1.ConditionReady, v1.ConditionProgressing} {
		if old := e.oldCondition(of); old != nil && slices.Contains(disagreements, v1.Reason(old.Reason)) {
			found := isFalse(v1.Reason(old.Reason), old.Message)
			if ready := e.oldCondition(v1.ConditionReady); ready != nil && ready.Status == metav1.ConditionTrue {
				found.status = metav1.ConditionTrue
			}
			return found
		}
	}
	return finding{}
}

// disagreements are the reasons for which agents don't agree.
var disagreements = []v1.Reason{v1.ReasonCoordinatorsDiffer, v1.ReasonListsDiffer, v1.ReasonSettingsDiffer}

// coordinatorsDiffer reports agents that name different coordinators. After an election, some time passes until all
// agents name the new coordinator, so an agent that names the old one counts only after the suspicion timeout:
//
//	ledger-4  coordinator ................|
//	ledger-2                                coordinator ............
//	ledger-0  names ledger-4 ................. names ledger-2 ......   late, but agrees
//	ledger-1  names ledger-4 .......................................   differs
//	                                      |-- suspicion timeout --|
//
// If a coordinator needs a majority, an agent that names a coordinator of an older term
// is no risk. Then the delay also includes the time until the operator detects that the
// agent is disconnected, so that its last report before that does not count.
func (e *evaluation) coordinatorsDiffer() (found finding, requeueAt time.Time) {
	all := e.sides(func(r *control.Report) (string, int64) { return r.Coordinator, int64(r.Term) })
	if len(all) < 2 || e.coordinator == nil {
		return finding{}, requeueAt
	}
	if i, ok := e.index[e.coordinator.Pod]; ok {
		delay := e.Group.Spec.Timing.SuspicionTimeout()
		if e.needsMajority() && all[0].order > all[1].order {
			delay += disconnectDetection
		}
		if until, over := e.deadline(e.rows[i].Since.Time, delay); !over {
			return finding{}, until
		}
	}
	agree := 0
	for _, s := range all {
		if s.value == e.coordinator.Pod {
			agree = len(s.pods)
		}
	}
	return e.harmless(isFalse(v1.ReasonCoordinatorsDiffer, describeSides(all, func(s side) string {
		return fmt.Sprintf("%s %s coordinator %s in term %d", membership.Abbreviate(s.pods),
			membership.Plural(len(s.pods), "reports", "report"), s.value, s.order)
	})), agree), requeueAt
}

// disconnectDetection is the time until the operator detects that an agent, which sends
// a keep-alive every few seconds, is disconnected.
const disconnectDetection = 15 * time.Second

func (e *evaluation) listsDiffer() finding {
	versions := map[uint32][]string{}
	for _, r := range e.reports {
		if !slices.Contains(versions[r.Version], r.Digest) {
			versions[r.Version] = append(versions[r.Version], r.Digest)
		}
	}
	all := e.sides(func(r *control.Report) (string, int64) {
		if len(versions[r.Version]) < 2 {
			return "", 0
		}
		return fmt.Sprint(r.Version, " ", r.Digest), int64(r.Version)
	})
	if len(all) < 2 {
		return finding{}
	}
	agree := 0
	for _, s := range all {
		agree = max(agree, len(s.pods))
	}
	return e.harmless(isFalse(v1.ReasonListsDiffer,
		"Agents ignore each other because their member lists differ: "+describeSides(all, func(s side) string {
			return fmt.Sprintf("%s %s one list of version %d", membership.Abbreviate(s.pods),
				membership.Plural(len(s.pods), "has", "have"), s.order)
		})+"; delete the pods of the smaller side"), agree)
}

// unknownLists reports agents that use a list that the operator hasn't published.
func (e *evaluation) unknownLists() finding {
	var pods []string
	for name, agent := range e.Agents {
		if agent.Connected && agent.Report != nil && agent.Report.UID == string(e.Group.UID) && e.isMember(name) &&
			e.usesUnknownList(agent.Report) {
			pods = append(pods, name)
		}
	}
	if len(pods) == 0 {
		return finding{}
	}
	return e.harmless(isFalse(v1.ReasonListsDiffer,
		fmt.Sprintf("%s %s a newer member list than version %d, which the other agents use: delete %s",
			membership.Abbreviate(pods), membership.Plural(len(pods), "reports", "report"), e.List.Version,
			membership.Plural(len(pods), "the pod", "these pods"))), len(e.reports))
}

func (e *evaluation) settingsDiffer() finding {
	var behind []string
	for _, r := range e.reports {
		if r.Generation < e.Group.Generation {
			behind = append(behind, r.Pod)
		}
	}
	if len(behind) == 0 {
		return finding{}
	}
	return e.harmless(isFalse(v1.ReasonSettingsDiffer, fmt.Sprintf("%s %s not applied generation %d of the spec yet",
		membership.Abbreviate(behind), membership.Plural(len(behind), "has", "have"), e.Group.Generation)),
		len(e.reports)-len(behind))
}
