package dashboard

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// ledger returns a group of five members, of which the member at this index is coordinator
// and the higher ones have crashed; -1 means that there is no coordinator.
func ledger(algorithm v1.Algorithm, coordinator int) *v1.ElectionGroup {
	const members = 5
	now := time.Now().UTC()
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger", Generation: 1}}
	g.Spec.Algorithm, g.Spec.Safety.Mode = algorithm, v1.Majority
	up := int32(members)
	g.Status.ObservedGeneration, g.Status.Members, g.Status.ReadyMembers, g.Status.Term = 1,
		new(int32(members)), &up, 279502082
	g.Status.Protocol.MemberList = &v1.MemberList{Version: 3, LeaseMillis: 9, State: v1.ListSettled}
	g.Status.Protocol.Document = &v1.PublishedDocument{Revision: 1, Digest: strings.Repeat("0", 64)}
	for i := range members {
		m := v1.Member{Pod: fmt.Sprint("ledger-", i), Priority: int32(10 * (i + 1))}
		g.Spec.Members = append(g.Spec.Members, m)
		g.Status.Protocol.MemberList.Members = append(g.Status.Protocol.MemberList.Members, m)
	}
	for i := members - 1; i >= 0; i-- {
		row := v1.Process{
			Pod: g.Spec.Members[i].Pod, Priority: g.Spec.Members[i].Priority, Status: v1.ProcessNormal,
			Since: new(metav1.NewTime(now.Add(-47 * time.Minute))),
			Node:  fmt.Sprint("node-", i%3+1),
		}
		switch {
		case i == coordinator:
			row.Status, row.Since = v1.ProcessCoordinator, new(metav1.NewTime(now.Add(-191*time.Second)))
		case i > coordinator:
			row.Status, row.Reason, row.Node = v1.ProcessCrashed, v1.ProcessPodMissing, ""
			row.Message = "There is no pod with this name: create it, or remove it from spec.members"
			row.Since = new(metav1.NewTime(now.Add(-191 * time.Second)))
			up--
		}
		g.Status.Processes = append(g.Status.Processes, row)
	}
	available, degraded := metav1.ConditionTrue, metav1.ConditionFalse
	if coordinator < 0 {
		available = metav1.ConditionFalse
	} else {
		c := g.Spec.Members[coordinator]
		g.Status.Coordinator = &v1.Coordinator{
			Pod: c.Pod, Priority: c.Priority, Term: g.Status.Term, ElectedAt: metav1.NewMicroTime(now.Add(-191 * time.Second)),
		}
	}
	if up < members {
		degraded = metav1.ConditionTrue
	}
	condition := func(of v1.ConditionType, status metav1.ConditionStatus, reason v1.Reason, message string) {
		g.Status.Conditions = append(g.Status.Conditions, metav1.Condition{
			Type: string(of), Status: status, Reason: string(reason), Message: message,
			LastTransitionTime: metav1.NewTime(now.Add(-191 * time.Second)),
		})
	}
	condition(v1.ConditionAvailable, available, v1.ReasonElected, "")
	condition(v1.ConditionReady, available, v1.ReasonHealthy, "The group is healthy")
	condition(v1.ConditionDegraded, degraded, v1.ReasonMembersDown,
		fmt.Sprintf("%d of %d members down: ledger-4", members-up, members))
	g.Status.History = history(g, now)
	return g
}

// history returns tenures of several members.
func history(g *v1.ElectionGroup, now time.Time) (all []v1.Tenure) {
	at := now.Add(-191 * time.Second)
	var until *metav1.MicroTime
	ends := []v1.EndReason{
		"", v1.EndCrash, v1.EndPreempted, v1.EndSilence, v1.EndStepDown,
		v1.EndSessionClosed, v1.EndPodDeleted, v1.EndUnknown,
	}
	gaps := []int64{4812, 350, 493000, 160, 2100, 1900, 410, 0}
	lasted := []time.Duration{
		0, 44 * time.Minute, 5 * time.Second, 26 * time.Hour, 3 * time.Hour, 12 * time.Second, 51 * time.Hour, 2 * time.Hour,
	}
	for i, end := range ends {
		pod := fmt.Sprint("ledger-", 4-(i+1)%2)
		if i == 0 && g.Status.Coordinator != nil {
			pod = g.Status.Coordinator.Pod
		}
		at = at.Add(-lasted[i])
		all = append(all, v1.Tenure{
			Number: int64(14 - i), Pod: pod, Term: g.Status.Term - int64(900*i), From: metav1.NewMicroTime(at), Until: until,
			EndReason: end, GapMicros: &gaps[i],
		})
		until = new(metav1.NewMicroTime(at.Add(-time.Duration(gaps[i]) * time.Microsecond)))
	}
	all[len(all)-1].GapMicros = nil
	if g.Status.Coordinator == nil {
		all = all[1:]
	}
	return all
}

// named returns a group with another name.
func named(namespace, name string, g *v1.ElectionGroup) *v1.ElectionGroup {
	g.Namespace, g.Name = namespace, name
	return g
}

// placed returns a group whose members, with the highest priority first, are on these nodes.
func placed(g *v1.ElectionGroup, nodes ...string) *v1.ElectionGroup {
	for i := range g.Status.Processes {
		g.Status.Processes[i].Node = nodes[i]
	}
	return g
}
