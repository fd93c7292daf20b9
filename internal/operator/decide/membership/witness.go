package membership

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
)

const (
	// WitnessGrace is how long a witness may be out of reach before another one replaces it. A pod that is replaced in a
	// rollout needs less.
	WitnessGrace = 30 * time.Second
	// MaxWitnessGroups bounds the groups of a witness.
	MaxWitnessGroups = 1000
	// MaxWitnessGroupsOfNamespace bounds those of a namespace, of all witnesses together: a group with two counts twice.
	MaxWitnessGroupsOfNamespace = 100
	// votes is how many votes a group has with its witnesses: it does without any one of them.
	votes = 3
)

// AsMember returns a pod, one of the operator as it is in the namespace of a group: of the group, and with an agent.
func AsMember(pod *corev1.Pod, group *v1.ElectionGroup) *corev1.Pod {
	if !v1.IsWitness(pod.Name) {
		return pod
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: group.Namespace, Name: pod.Name, UID: pod.UID, CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            map[string]string{v1.LabelAgent: v1.AgentEnabled},
			Annotations:       map[string]string{v1.AnnotationGroups: group.Name},
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, InitContainers: []corev1.Container{{Name: v1.AgentContainer}},
		},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, PodIPs: pod.Status.PodIPs, Conditions: pod.Status.Conditions,
		},
	}
}

// WitnessesOf returns the witnesses in a list.
func WitnessesOf(list *v1.MemberList) (names []string) {
	if list != nil {
		for _, m := range list.Members {
			if v1.IsWitness(m.Pod) {
				names = append(names, m.Pod)
			}
		}
	}
	return names
}

// LacksWitness reports whether the operator should give witnesses to the members of a list.
func LacksWitness(group *v1.ElectionGroup, list *v1.MemberList) bool {
	return group.Spec.Witness == v1.WitnessManaged && list != nil && len(list.Members) < votes
}

// SharedNode returns the node that a witness of a list shares with another member, or "": two votes are lost with that
// node.
func SharedNode(known *facts.Facts, list *v1.MemberList) string {
	f := planner{Facts: known}
	for _, name := range WitnessesOf(list) {
		if witness := f.Pods[name]; witness != nil && f.distance(witness, list.Members) == sameNode {
			return witness.Spec.NodeName
		}
	}
	return ""
}

// withWitnesses adds witnesses to one or two members: all that they need or none, as both of two votes are a majority.
func (f *planner) withWitnesses(members []v1.Member) []v1.Member {
	if f.Group.Spec.Witness != v1.WitnessManaged || len(members) == 0 {
		return members
	}
	all, present := slices.Clone(members), WitnessesOf(f.MemberList())
	for len(all) < votes {
		name := ""
		if len(present) > 0 {
			name, present = present[0], present[1:]
		}
		if name = f.witness(all, name); name == "" {
			return members
		}
		all = append(all, v1.Member{Pod: name})
	}
	return all
}

// witness returns a further witness for members: the present one, unless it is lost, or shares a node with a member and
// another one doesn't. Nobody is lost by the change to that: it waits until all members are connected. It returns "" if
// there is none.
func (f *planner) witness(members []v1.Member, present string) string {
	list := f.MemberList()
	isLost := f.WitnessLost && !f.Accepts(present)
	missing := func(m v1.Member) bool { return !f.Accepts(m.Pod) }
	if present != "" && !isLost && (list.State != v1.ListSettled ||
		slices.ContainsFunc(list.Members, missing) || f.distance(f.Pods[present], members) > sameNode) {
		return present
	}
	if f.WitnessGroups == nil {
		f.needsWitnesses = true
		return present
	}
	best := f.bestWitness(members, func(name string) bool {
		return hasMember(members, name) || name == present && isLost ||
			name != present && slices.Contains(WitnessesOf(list), name)
	})
	switch {
	case best == nil, best.Name == present, present == "" && f.WitnessLimit:
		return present
	case present == "", isLost, f.distance(best, members) > sameNode:
		return best.Name
	}
	return present
}

func hasMember(members []v1.Member, pod string) bool {
	return slices.ContainsFunc(members, func(m v1.Member) bool { return m.Pod == pod })
}

// bestWitness returns the pod that is farthest from the members, of several the one with fewest groups, or nil.
func (f *planner) bestWitness(members []v1.Member, isExcluded func(string) bool) *corev1.Pod {
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue} // The cache has no other fields.
	usable := slices.DeleteFunc(slices.Clone(f.Witnesses), func(w *corev1.Pod) bool {
		return w.DeletionTimestamp != nil || w.Status.PodIP == "" || isExcluded(w.Name) ||
			f.WitnessGroups[w.Name] >= MaxWitnessGroups || !slices.Contains(w.Status.Conditions, ready)
	})
	if len(usable) == 0 {
		return nil
	}
	return slices.MinFunc(usable, func(a, b *corev1.Pod) int {
		return cmp.Or(-cmp.Compare(f.distance(a, members), f.distance(b, members)),
			cmp.Compare(f.WitnessGroups[a.Name], f.WitnessGroups[b.Name]), cmp.Compare(a.Name, b.Name))
	})
}

// distance is how far a witness is from the nearest member.
type distance int

const (
	sameNode distance = iota
	sameZone
	otherZone // or they aren't known
)

func (f *planner) distance(witness *corev1.Pod, members []v1.Member) distance {
	nearest := otherZone
	for _, m := range members {
		pod := f.Pods[m.Pod]
		if i := slices.IndexFunc(f.Witnesses, func(w *corev1.Pod) bool { return w.Name == m.Pod }); i >= 0 {
			pod = f.Witnesses[i]
		}
		if witness == nil || pod == nil || m.Pod == witness.Name {
			continue
		}
		own, other := witness.Spec.NodeName, pod.Spec.NodeName // "" before the pod is scheduled
		if own == other && own != "" {
			return sameNode
		}
		if z := Location(witness, f.Nodes[own], v1.SpreadZone); z != "" && z == Location(pod, f.Nodes[other], v1.SpreadZone) {
			nearest = sameZone
		}
	}
	return nearest
}
