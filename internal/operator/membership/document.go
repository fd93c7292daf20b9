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

// Document returns the document that configures a group's agents. The caller sets its
// revision.
func Document(group *v1.ElectionGroup, list *v1.MemberList, pods []*corev1.Pod) control.Document {
	addresses := peerAddresses(pods)
	g := groupSettings(group)
	g.Version = uint32(list.Version)
	g.Members = documentMembers(list.Members, addresses)
	if list.Previous != nil {
		g.Previous = &control.List{Version: uint32(list.Previous.Version), Members: documentMembers(list.Previous.Members, addresses)}
	}
	g.Departed = pureList(list).NotNeeded()
	if list.Floor != nil {
		g.Floor = uint64(*list.Floor)
	}
	return control.Document{UID: string(group.UID), Generation: group.Generation, Group: g}
}

// groupSettings returns the settings of a group. They have the defaults of the schema
// even if the API server has not set them.
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
			HeartbeatMillis:    cmp.Or(spec.Timing.HeartbeatMillis, 100),
			MinHeartbeatMillis: spec.Timing.MinHeartbeatMillis,
			PatienceMillis:     spec.Timing.PatienceMillis,
			StaggerMillis:      spec.Timing.StaggerMillis,
			ReplyMillis:        spec.Timing.ReplyMillis,
			DrainMillis:        cmp.Or(spec.Timing.DrainMillis, new(int32(5000))),
		},
		Application: control.Application{Session: string(cmp.Or(spec.Application.Session, v1.SessionOptional))},
	}
}

func leaseMillis(group *v1.ElectionGroup) int32 { return cmp.Or(group.Spec.Safety.LeaseMillis, 500) }

func documentMembers(members []v1.Member, addresses map[string]string) []control.Member {
	list := make([]control.Member, len(members))
	for i, m := range members {
		list[i] = control.Member{Name: m.Pod, Priority: uint32(m.Priority), Address: addresses[m.Pod]}
	}
	return list
}

// peerAddresses returns the addresses at which agents connect to each other, by pod.
//
// Several pods may have the same IP address. For example, when pod a is deleted, the new
// pod b may get its address while the API server still has a; and pods on the network of
// the same host always share its address. Agents reject a document with a duplicate
// address, so only one of these pods gets it.
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
	addresses := make(map[string]string, len(owner))
	for ip, pod := range owner {
		addresses[pod.Name] = net.JoinHostPort(ip, strconv.Itoa(control.PeerPort))
	}
	return addresses
}

// ownsAddress reports whether pod a, rather than pod b, gets the address that both have:
// the one that is not being deleted, or else the newer one.
func ownsAddress(a, b *corev1.Pod) bool {
	if terminating := a.DeletionTimestamp != nil; terminating != (b.DeletionTimestamp != nil) {
		return !terminating
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name)) > 0
}
