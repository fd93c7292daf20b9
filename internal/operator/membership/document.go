package membership

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Document is what agents are told about a group. Its revision is left to the
// caller.
func Document(group *v1.ElectionGroup, list *v1.MemberList, pods []*corev1.Pod) control.Document {
	at := peerAddresses(pods)
	g := groupSettings(group)
	g.Version = uint32(list.Version)
	g.Members = documentMembers(list.Members, at)
	if list.Previous != nil {
		g.Previous = &control.List{Version: uint32(list.Previous.Version), Members: documentMembers(list.Previous.Members, at)}
	}
	g.Departed = departed(list)
	if list.Floor != nil {
		g.Floor = uint64(*list.Floor)
	}
	return control.Document{UID: string(group.UID), Generation: group.Generation, Group: g}
}

// departed are the members of the list before that are no longer asked: all, as
// soon as it has no say. Otherwise an agent that starts later would wait for a
// majority of pods which may be gone for good.
func departed(list *v1.MemberList) []string {
	if list.Previous == nil || list.State != v1.ListSettled {
		return list.Departed
	}
	all := make([]string, len(list.Previous.Members))
	for i, m := range list.Previous.Members {
		all[i] = m.Pod
	}
	return all
}

// settings are the group's own. The API server has filled in the defaults; a
// group that never met one gets the same.
func groupSettings(group *v1.ElectionGroup) control.Group {
	spec := &group.Spec
	return control.Group{
		Name:      group.Name,
		Algorithm: string(cmp.Or(spec.Algorithm, v1.StatusTable)),
		Safety: control.Safety{
			Mode: string(cmp.Or(spec.Safety.Mode, v1.Majority)), LeaseMillis: leaseMillis(group),
		},
		Preemption: control.Preemption{
			Policy:        string(cmp.Or(spec.Preemption.Policy, v1.PreemptWhenStable)),
			StableSeconds: *cmp.Or(spec.Preemption.StableSeconds, new(int32(5))),
		},
		Timing: control.Timing{
			HeartbeatMillis: cmp.Or(spec.Timing.HeartbeatMillis, 100),
			PatienceMillis:  spec.Timing.PatienceMillis,
			StaggerMillis:   spec.Timing.StaggerMillis,
			ReplyMillis:     spec.Timing.ReplyMillis,
			DrainMillis:     cmp.Or(spec.Timing.DrainMillis, new(int32(5000))),
		},
		Application: control.Application{Session: string(cmp.Or(spec.Application.Session, v1.SessionOptional))},
	}
}

func leaseMillis(group *v1.ElectionGroup) int32 { return cmp.Or(group.Spec.Safety.LeaseMillis, 500) }

func documentMembers(members []v1.Member, at map[string]string) []control.Member {
	list := make([]control.Member, len(members))
	for i, m := range members {
		list[i] = control.Member{Name: m.Pod, Priority: uint32(m.Priority), Address: at[m.Pod]}
	}
	return list
}

// addresses are where the pods' agents await each other, by the pod's name. An
// address goes from a pod that ends to another one, and for a moment the API
// server knows two that have it; two pods on the network of one host have the
// same one for good. Agents would refuse a document in which two are at one
// place: the pod that is there to stay has it.
func peerAddresses(pods []*corev1.Pod) map[string]string {
	owner := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		ip := pod.Status.PodIP
		if _, err := netip.ParseAddr(ip); err != nil || Finished(pod) {
			continue
		}
		if other := owner[ip]; other == nil || ownsAddress(pod, other) {
			owner[ip] = pod
		}
	}
	at := make(map[string]string, len(owner))
	for ip, pod := range owner {
		at[pod.Name] = net.JoinHostPort(ip, strconv.Itoa(control.PeerPort))
	}
	return at
}

// outlives reports whether a is the one of two pods that has their address.
func ownsAddress(a, b *corev1.Pod) bool {
	if ending := a.DeletionTimestamp != nil; ending != (b.DeletionTimestamp != nil) {
		return !ending
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name)) > 0
}
