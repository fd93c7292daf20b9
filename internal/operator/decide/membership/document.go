package membership

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// publishDocument adds the document of a list to a plan. It has the revision of the published document if it has its
// digest, and a higher one otherwise: two documents of a group with the same revision don't differ.
func (p *Plan) publishDocument(f *planner, list *v1.MemberList) {
	document := Document(f.Group, list, f.Pods)
	p.Document = &document
	if old := f.Published; old != nil && old.Revision >= f.Revision {
		document.Revision = old.Revision
		if p.encode(); p.Published == *old {
			return
		}
	}
	document.Revision = max(f.Revision+1, f.Now.UnixMilli())
	p.encode()
}

// encode encodes the document for agents. Its digest is that of these bytes.
func (p *Plan) encode() {
	encoded, err := json.Marshal(p.Document)
	if err != nil {
		panic(fmt.Sprintf("cannot encode a document of numbers and strings: %v", err))
	}
	digest := sha256.Sum256(encoded)
	p.Encoded, p.Published = encoded,
		v1.PublishedDocument{Revision: p.Document.Revision, Digest: hex.EncodeToString(digest[:])}
}

// Document returns the document that configures a group's agents. The caller sets its revision.
func Document(group *v1.ElectionGroup, list *v1.MemberList, pods map[string]*corev1.Pod) control.Document {
	peers := peerPods(pods)
	g := groupSettings(group, list.LeaseMillis)
	g.List = *listOf(list)
	g.Departed = g.NotNeeded()
	setAddresses(g.Members, peers)
	if g.Previous != nil {
		setAddresses(g.Previous.Members, peers)
	}
	return control.Document{UID: string(group.UID), Generation: group.Generation, Group: g}
}

// groupSettings returns the settings of a group with the longest lease of its list. They have the
// defaults of the schema even if the API server has not set them.
//
// The spec may have a longer lease than the list. For example, a user changes the lease
// from 500 to 5000 ms, and the heartbeat to 2000 ms. The list with 5000 ms begins only
// when the list before it has settled. Until then, the lease is 2000 ms, the longest of the list
// before, and the heartbeat is 999 ms, so that the coordinator renews its grants in time.
func groupSettings(group *v1.ElectionGroup, longestLease int32) control.Group {
	spec := &group.Spec
	leaseMillis := min(usualLease(group), longestLease)
	heartbeat := cmp.Or(spec.Timing.HeartbeatMillis, 100)
	suspicionTimeout := spec.Timing.SuspicionTimeoutMillis
	if longest := max((leaseMillis-1)/2, 1); heartbeat > longest && spec.Safety.Mode != v1.Available {
		suspicionTimeout = cmp.Or(suspicionTimeout, new(4*heartbeat)) // Its default follows from the heartbeat.
		heartbeat = longest
	}
	return control.Group{
		Name:      group.Name,
		Algorithm: string(cmp.Or(spec.Algorithm, v1.StatusTable)),
		Safety: control.Safety{
			Mode: string(cmp.Or(spec.Safety.Mode, v1.Majority)), LeaseMillis: leaseMillis, LongestLeaseMillis: longestLease,
		},
		Preemption: control.Preemption{
			Policy:       string(cmp.Or(spec.Preemption.Policy, v1.PreemptWhenStable)),
			StableMillis: cmp.Or(spec.Preemption.StableMillis, new(int32(5000))),
		},
		Timing: control.Timing{
			HeartbeatMillis:        heartbeat,
			SuspicionTimeoutMillis: suspicionTimeout,
			StaggerMillis:          spec.Timing.StaggerMillis,
			ReplyMillis:            spec.Timing.ReplyMillis,
			DrainMillis:            cmp.Or(spec.Timing.DrainMillis, new(int32(5000))),
		},
		Application: control.Application{Session: string(cmp.Or(spec.Application.Session, v1.SessionOptional))},
		Service:     agentService(spec.Service),
	}
}

// usualLease returns the lease that the group has while no renewal is late, in milliseconds.
func usualLease(group *v1.ElectionGroup) int32 {
	return cmp.Or(group.Spec.Safety.LeaseMillis, int32(control.DefaultLease/time.Millisecond))
}

// longestLease returns the longest lease for which members may grant, in milliseconds. It belongs to the member list,
// because the operator waits for it.
func longestLease(group *v1.ElectionGroup) int32 {
	return control.LongestLeaseMillis(usualLease(group))
}

func setAddresses(members []memberlist.Member, peers map[string]*corev1.Pod) {
	for i, m := range members {
		if pod := peers[m.Name]; pod != nil {
			members[i].Address = net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(control.PeerPort))
			members[i].UID = string(pod.UID)
		}
	}
}

// peerPods returns the pods that have an address at which agents connect to each other, by name.
//
// Several pods may have the same IP address. For example, when pod a is deleted, the new pod b may get its address
// while the API server still has a; and pods on the network of the same host always share its address. Agents reject a
// document with a duplicate address, so only one of these pods gets it.
func peerPods(pods map[string]*corev1.Pod) map[string]*corev1.Pod {
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
	peers := make(map[string]*corev1.Pod, len(owner))
	for _, pod := range owner {
		peers[pod.Name] = pod
	}
	return peers
}

// ownsAddress reports whether pod a, rather than pod b, gets the address that both have:
// the one that is not being deleted, or else the newer one.
func ownsAddress(a, b *corev1.Pod) bool {
	if terminating := a.DeletionTimestamp != nil; terminating != (b.DeletionTimestamp != nil) {
		return !terminating
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name)) > 0
}
