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
type side struct {
	what  string
	order int64
	pods  []string
}

// sides are who says what, those with the highest order first.
func (h *hearing) sides(say func(*control.Report) (what string, order int64)) []side {
	var all []side
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
			all = append(all, side{what: what})
		}
		all[i].order = max(all[i].order, order)
		all[i].pods = append(all[i].pods, v.Pod)
	}
	slices.SortFunc(all, func(a, b side) int {
		return cmp.Or(cmp.Compare(b.order, a.order), cmp.Compare(len(b.pods), len(a.pods)), strings.Compare(a.pods[0], b.pods[0]))
	})
	return all
}

// each says something of the first few sides.
func each(all []side, phrase func(side) string) string {
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
func (h *hearing) agreed() (found finding, again time.Time) {
	if none := h.noReports(); none.reason != "" {
		return none, again
	}
	differ, again := h.coordinatorsDiffer()
	return first(always(differ), h.listsDiffer, h.settingsDiffer, always(good(v1.ReasonAgreed, "all agents say the same"))), again
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
func (h *hearing) coordinatorsDiffer() (found finding, again time.Time) {
	all := h.sides(func(v *control.Report) (string, int64) { return v.Coordinator, int64(v.Term) })
	if len(all) < 2 || h.coordinator == nil {
		return finding{}, again
	}
	if at, ok := h.place[h.coordinator.Pod]; ok {
		wait := h.patience()
		if h.guarded() && all[0].order > all[1].order {
			wait += unheard
		}
		if until, over := h.after(h.rows[at].Since.Time, wait); !over {
			return finding{}, until
		}
	}
	return bad(v1.ReasonCoordinatorsDiffer, each(all, func(s side) string {
		verb := "say"
		if len(s.pods) == 1 {
			verb = "says"
		}
		return fmt.Sprintf("%s %s that %s leads in term %d", membership.Abbreviate(s.pods), verb, s.what, s.order)
	})), again
}

// unheard is how long an agent may have been cut off before the operator, who
// hears it breathe every few seconds, knows.
const unheard = 15 * time.Second

func (h *hearing) listsDiffer() finding {
	versions := map[uint32][]string{}
	for _, v := range h.reports {
		if !slices.Contains(versions[v.Version], v.Digest) {
			versions[v.Version] = append(versions[v.Version], v.Digest)
		}
	}
	all := h.sides(func(v *control.Report) (string, int64) {
		if len(versions[v.Version]) < 2 {
			return "", 0
		}
		return fmt.Sprint(v.Version, " ", v.Digest), int64(v.Version)
	})
	if len(all) < 2 {
		return finding{}
	}
	return bad(v1.ReasonListsDiffer, "agents don't listen to each other: "+each(all, func(s side) string {
		return fmt.Sprintf("%s by one list of version %d", goBy(s.pods), s.order)
	})+"; delete the pods on the smaller side")
}

func goBy(pods []string) string {
	if len(pods) == 1 {
		return pods[0] + " goes"
	}
	return membership.Abbreviate(pods) + " go"
}

func (h *hearing) settingsDiffer() finding {
	var behind []string
	for _, v := range h.reports {
		if v.Generation < h.Group.Generation {
			behind = append(behind, v.Pod)
		}
	}
	if len(behind) == 0 {
		return finding{}
	}
	return bad(v1.ReasonSettingsDiffer, fmt.Sprintf("%s on the way to generation %d of the spec", are(behind), h.Group.Generation))
}
