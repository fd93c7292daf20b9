package describe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Warnings returns what no condition says: settings and placements that will be a problem after a
// failure, and what went wrong repeatedly although the group is healthy now.
func Warnings(g *v1.ElectionGroup, now time.Time) (all []Problem) {
	for _, find := range []func(*v1.ElectionGroup,
		time.Time) []Problem{warnOfFailures, warnOfDrain, warnOfPlaces} {
		all = append(all, find(g, now)...)
	}
	for i := range all {
		all[i].Runbook = runbook(v1.Reason(all[i].Reason))
	}
	return all
}

// The reasons of warnings that have a runbook.
const (
	reasonFlapping    v1.Reason = "Flapping"
	reasonLeaseLapses v1.Reason = "LeaseLapses"
)

const (
	// flapping is the number of tenures that end by a failure within flappingPeriod, from which a group flaps.
	flapping       = 5
	flappingPeriod = 10 * time.Minute
	// manyLapses is the number of lost leases in lapsesPeriod, from which one wasn't bad luck.
	manyLapses   = 2
	lapsesPeriod = 24 * time.Hour
)

// FlapsUntil returns until when a group counts as flapping, or zero if it doesn't.
func FlapsUntil(g *v1.ElectionGroup, now time.Time) time.Time {
	if ends := failures(g, now, flappingPeriod); len(ends) >= flapping {
		return ends[flapping-1].Until.Add(flappingPeriod)
	}
	return time.Time{}
}

// failures returns the tenures that ended by a failure in a period, the newest first.
func failures(g *v1.ElectionGroup, now time.Time, period time.Duration) (all []v1.Tenure) {
	for i := range g.Status.History {
		if t := g.Status.History[i]; t.Until != nil && t.EndedByFailure() && now.Sub(t.Until.Time) < period {
			all = append(all, t)
		}
	}
	return all
}

// warnOfFailures finds groups that flap, or whose lease is too short for their delays.
func warnOfFailures(g *v1.ElectionGroup, now time.Time) []Problem {
	if ends := failures(g, now, flappingPeriod); len(ends) >= flapping {
		count := map[v1.EndReason]int{}
		var order []v1.EndReason
		for _, t := range ends {
			if count[t.EndReason]++; count[t.EndReason] == 1 {
				order = append(order, t.EndReason)
			}
		}
		slices.SortStableFunc(order, func(a, b v1.EndReason) int { return count[b] - count[a] })
		var reasons []string
		for _, reason := range order {
			reasons = append(reasons, fmt.Sprintf("%d %s", count[reason], reason))
		}
		return []Problem{{
			Reason: string(reasonFlapping),
			Message: fmt.Sprintf("%d tenures have ended by a failure in the last ten minutes: %s.", len(ends),
				strings.Join(reasons, ", ")),
			Advice: flappingAdvice(g, order[0], ends),
		}}
	}
	ends := slices.DeleteFunc(failures(g, now, lapsesPeriod), func(t v1.Tenure) bool { return t.EndReason != v1.EndLapse })
	if len(ends) < manyLapses {
		return nil
	}
	return []Problem{{
		Reason: string(reasonLeaseLapses),
		Message: fmt.Sprintf("In the last day, %d coordinators lost their lease: no majority answered within the lease "+
			"(spec.safety.leaseMillis: %d, and longer while renewals are late).", len(ends), g.Spec.Safety.LeaseMillis),
		Advice: flappingAdvice(g, v1.EndLapse, ends),
	}}
}

// flappingAdvice returns how to find out why most of the tenures ended for a reason. ends has the newest first.
func flappingAdvice(g *v1.ElectionGroup, reason v1.EndReason, ends []v1.Tenure) string {
	switch reason {
	case v1.EndLapse:
		return "Find out what delays agents, such as a CPU limit, a busy node or the network. The metric " +
			"conclave_answer_seconds has the delays, and docs/configure.md the lease that they need."
	case v1.EndSilence:
		return "Find out what delays agents, such as a CPU limit, a busy node or the network. The metric " +
			"conclave_answer_seconds has the delays."
	case v1.EndSessionClosed, v1.EndNotRenewed, v1.EndProbeFailed:
		last := slices.IndexFunc(ends, func(t v1.Tenure) bool { return t.EndReason == reason })
		logs := fmt.Sprintf(
			"See the logs of the application, with --previous if its container has restarted: kubectl logs %s %s",
			ends[last].Pod, namespaceFlag(g))
		if reason == v1.EndNotRenewed {
			return "The application or its agent was delayed or paused, for example by a CPU limit or a busy node. " + logs
		}
		return logs
	default:
		return "Agents or pods restart. See why: kubectl describe pods " + namespaceFlag(g)
	}
}

// countEligible counts the members that may be elected.
func countEligible(list *v1.MemberList) int {
	eligible := 0
	for _, m := range list.Members {
		if m.Priority > 0 {
			eligible++
		}
	}
	return eligible
}

// warnOfDrain finds drain timeouts that limit for how long an application may act without a newer answer of its agent.
func warnOfDrain(g *v1.ElectionGroup, _ time.Time) []Problem {
	drain, lease := g.Spec.Timing.DrainMillis, g.Spec.Safety.LeaseMillis
	if drain == nil || *drain >= lease || g.Spec.Safety.Mode == v1.Available {
		return nil
	}
	message := fmt.Sprintf("spec.timing.drainMillis (%d) is shorter than spec.safety.leaseMillis (%d), so a coordinator "+
		"must stop when its agent hasn't answered for %d ms.",
		*drain, lease, *drain)
	if *drain == 0 {
		message = "spec.timing.drainMillis is 0, so agents promise no time: an application with a session " +
			"can't act as coordinator."
	}
	return []Problem{{Reason: "ShortDrain", Message: message, Advice: fmt.Sprintf(
		"Set spec.timing.drainMillis to at least %d.", lease)}}
}

// minSpread is the number of members, and of zones, from which a group can survive the loss of any
// node or zone in all modes.
const minSpread = 3

// warnOfPlaces finds nodes, or else zones, whose loss stops a group although all of its members
// are up: members share them.
func warnOfPlaces(g *v1.ElectionGroup, _ time.Time) []Problem {
	if g.Status.Protocol.MemberList == nil || len(g.Status.Protocol.MemberList.Members) < minSpread {
		return nil
	}
	intact := Intact(g)
	found := sharedPlaces(g, "node", "kubernetes.io/hostname", Nodes(intact))
	if zones := Zones(intact); len(found) == 0 && len(zones) >= minSpread {
		found = sharedPlaces(g, "zone", "topology.kubernetes.io/zone", zones)
	}
	return found
}

func sharedPlaces(g *v1.ElectionGroup, kind, key string, places []Place) (all []Problem) {
	for _, p := range places {
		if p.Loss != Stops || p.Missing == EligibleMember && countEligible(g.Status.Protocol.MemberList) == 1 {
			continue
		}
		all = append(all, Problem{
			Reason: "SharedPlace",
			Message: fmt.Sprintf("The %s %s has %d of %d members (%s): if it fails, there is no %s.", kind, p.Name, len(
				p.Members),
				len(g.Status.Protocol.MemberList.Members), JoinNames(p.Members, "and"), p.Missing),
			Advice: fmt.Sprintf("Spread the pods over more %ss: set topologySpreadConstraints or podAntiAffinity with the "+
				"topologyKey %s in the pod template.", kind, key),
		})
	}
	return all
}
