package groupstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// side are the agents that say the same.
type agreeing struct {
	value string
	order int64
	pods  []string
}

// sides are who says what, those with the highest order first.
func (h *evaluation) partition(say func(*control.Report) (what string, order int64)) []agreeing {
	var all []agreeing
	at := map[string]int{}
	for _, v := range h.reports {
		what, order := say(v)
		if what == "" {
			continue
		}
		i, ok := at[what]
		if !ok {
			i = len(all)
			at[what] = i
			all = append(all, agreeing{value: what})
		}
		all[i].order = max(all[i].order, order)
		all[i].pods = append(all[i].pods, v.Pod)
	}
	slices.SortFunc(all, func(a, b agreeing) int {
		return cmp.Or(cmp.Compare(b.order, a.order), cmp.Compare(len(b.pods), len(a.pods)), strings.Compare(a.pods[0], b.pods[0]))
	})
	return all
}

// each says something of the first few sides.
func describeEach(all []agreeing, phrase func(agreeing) string) string {
	const most = 3
	var parts []string
	for _, s := range all[:min(most, len(all))] {
		parts = append(parts, phrase(s))
	}
	if n := len(all) - most; n > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(parts, "; ")
}

// agreed is the condition Agreed, and when to look at it again.
func (h *evaluation) agreedCondition() (found finding, again time.Time) {
	if none := h.noReports(); none.reason != "" {
		return none, again
	}
	differ, again := h.coordinatorsDiffer()
	return firstFinding(constant(differ), h.listsDiffer, h.settingsDiffer, constant(isTrue(v1.ReasonAgreed, "all agents say the same"))), again
}

// coordinatorsDiffer: after an election, some still name the coordinator before.
// Whoever does so after its patience means it:
//
//	ledger-4  . . . . leads ......|
//	ledger-2                        leads .................
//	ledger-0  names ledger-4 .......... names ledger-2 ....     behind: nobody's fault
//	ledger-1  names ledger-4 ..............................     another view
//	                                |--- patience ---|
//
// Where it takes a majority to lead, a view of an older term is no second
// coordinator. Then more patience does no harm, and an agent that has been cut
// off isn't blamed for what it said last before the operator has noticed.
func (h *evaluation) coordinatorsDiffer() (found finding, again time.Time) {
	all := h.partition(func(v *control.Report) (string, int64) { return v.Coordinator, int64(v.Term) })
	if len(all) < 2 || h.coordinator == nil {
		return finding{}, again
	}
	if at, ok := h.index[h.coordinator.Pod]; ok {
		wait := h.suspicionTimeout()
		if h.needsMajority() && all[0].order > all[1].order {
			wait += disconnectDetection
		}
		if until, over := h.delayAfter(h.rows[at].Since.Time, wait); !over {
			return finding{}, until
		}
	}
	return isFalse(v1.ReasonCoordinatorsDiffer, describeEach(all, func(s agreeing) string {
		verb := "say"
		if len(s.pods) == 1 {
			verb = "says"
		}
		return fmt.Sprintf("%s %s that %s leads in term %d", membership.Abbreviate(s.pods), verb, s.value, s.order)
	})), again
}

// unheard is how long an agent may have been cut off before the operator, who
// hears it breathe every few seconds, knows.
const disconnectDetection = 15 * time.Second

func (h *evaluation) listsDiffer() finding {
	versions := map[uint32][]string{}
	for _, v := range h.reports {
		if !slices.Contains(versions[v.Version], v.Digest) {
			versions[v.Version] = append(versions[v.Version], v.Digest)
		}
	}
	all := h.partition(func(v *control.Report) (string, int64) {
		if len(versions[v.Version]) < 2 {
			return "", 0
		}
		return fmt.Sprint(v.Version, " ", v.Digest), int64(v.Version)
	})
	if len(all) < 2 {
		return finding{}
	}
	return isFalse(v1.ReasonListsDiffer, "agents don't listen to each other: "+describeEach(all, func(s agreeing) string {
		return fmt.Sprintf("%s by one list of version %d", useVerb(s.pods), s.order)
	})+"; delete the pods on the smaller side")
}

func useVerb(pods []string) string {
	if len(pods) == 1 {
		return pods[0] + " goes"
	}
	return membership.Abbreviate(pods) + " go"
}

func (h *evaluation) settingsDiffer() finding {
	var behind []string
	for _, v := range h.reports {
		if v.Generation < h.Group.Generation {
			behind = append(behind, v.Pod)
		}
	}
	if len(behind) == 0 {
		return finding{}
	}
	return isFalse(v1.ReasonSettingsDiffer, fmt.Sprintf("%s on the way to generation %d of the spec", areVerb(behind), h.Group.Generation))
}
