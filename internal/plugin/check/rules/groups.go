package rules

import (
	"fmt"
	"strings"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
)

func checkGroups(f *Facts) []Finding {
	if len(f.Groups) == 0 {
		message := "There are no groups."
		if f.Namespace != "" {
			message = "There are no groups in namespace " + f.Namespace + "; to check those of all namespaces, use -A."
		}
		return []Finding{{Level: OK, Object: "groups", Message: message}}
	}
	var all []Finding
	for i := range f.Groups {
		if f.Group == "" || f.Groups[i].Name == f.Group {
			all = append(all, checkGroup(f, &f.Groups[i])...)
			all = append(all, checkTiming(f, &f.Groups[i])...)
		}
	}
	return all
}

func checkGroup(f *Facts, g *v1.ElectionGroup) []Finding {
	object := "group " + g.Namespace + "/" + g.Name
	var all []Finding
	noFailover := false
	for _, p := range describe.Problems(g) {
		level, message := Problem, p.Message
		if p.Reason == string(v1.ReasonNoFailover) { // Ready is True.
			level, noFailover = Warning, true
		}
		if p.Type != "" {
			message = fmt.Sprintf("%s is %s (%s): %s", p.Type, p.Status, p.Reason, p.Message)
		}
		all = append(all, Finding{level, object, message, p.Advice})
	}
	if g.Status.Coordinator == nil && len(all) == 0 {
		all = append(all, Finding{Problem, object, "It has no coordinator.", "See: kubectl conclave status " + g.Name + " -n " + g.Namespace})
	}
	if !noFailover {
		all = append(all, checkSize(g, object)...)
	}
	all = append(all, checkLease(f, g, object)...)
	all = append(all, checkDrain(g, object)...)
	all = append(all, checkPlacement(g, object)...)
	if len(all) == 0 {
		all = append(all, Finding{Level: OK, Object: object, Message: fmt.Sprintf("%s is the coordinator, and all members are up.", g.Status.Coordinator.Pod)})
	}
	return all
}

// checkSize finds groups that can't fail over.
func checkSize(g *v1.ElectionGroup, object string) []Finding {
	list := g.Status.MemberList
	if list == nil {
		return nil
	}
	needsMajority := !strings.EqualFold(string(g.Spec.Safety.Mode), string(v1.Available))
	switch {
	case needsMajority && len(list.Members) == 2:
		return []Finding{{
			Warning, object, "It has two members. A coordinator needs both, so it can't fail over.",
			"Add a third member. With priority 0, it votes and is never elected.",
		}}
	case countEligible(g) == 1 && len(list.Members) > 1:
		return []Finding{{Warning, object, "Only one member has a priority above 0, so no other can become coordinator.", "Give others a priority above 0."}}
	}
	return nil
}

// countEligible counts the members that may be elected.
func countEligible(g *v1.ElectionGroup) int {
	eligible := 0
	for _, m := range g.Status.MemberList.Members {
		if m.Priority > 0 {
			eligible++
		}
	}
	return eligible
}

// checkLease finds leases that are too short for the delays of the group: repeatedly, the answers
// of a majority have taken longer.
func checkLease(f *Facts, g *v1.ElectionGroup, object string) []Finding {
	const recent, many = 24 * time.Hour, 2
	lapses := 0
	for i := range g.Status.History {
		if t := &g.Status.History[i]; t.EndReason == v1.EndLapse && t.Until != nil && f.Now.Sub(t.Until.Time) < recent {
			lapses++
		}
	}
	if lapses < many {
		return nil
	}
	return []Finding{{
		Warning, object, fmt.Sprintf("In the last day, %d coordinators lost their lease: no majority answered within spec.safety.leaseMillis (%d).", lapses, g.Spec.Safety.LeaseMillis),
		"Find out what delays agents, such as a CPU limit or the network, or set a longer lease.",
	}}
}

// checkDrain finds drain timeouts that limit for how long an application may act without a newer
// answer of its agent.
func checkDrain(g *v1.ElectionGroup, object string) []Finding {
	drain, lease := g.Spec.Timing.DrainMillis, g.Spec.Safety.LeaseMillis
	if drain == nil || *drain >= lease || g.Spec.Safety.Mode == v1.Available {
		return nil
	}
	message := fmt.Sprintf("spec.timing.drainMillis (%d) is shorter than spec.safety.leaseMillis (%d), so a coordinator must stop when its agent hasn't answered for %d ms.",
		*drain, lease, *drain)
	if *drain == 0 {
		message = "spec.timing.drainMillis is 0, so agents promise no time: an application with a session can't act as coordinator."
	}
	return []Finding{{Warning, object, message, fmt.Sprintf("Set spec.timing.drainMillis to at least %d.", lease)}}
}
