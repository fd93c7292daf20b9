package membership

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// violation returns the violated rule of the schema, or "": see api/v1/memberlist.go.
func violation(was, is *v1.MemberList) string {
	switch {
	case is.Previous == nil && (is.Departed != nil || is.State != v1.ListSettled):
		return "a first list must not have a previous list"
	case is.Previous != nil && is.Previous.Version >= is.Version:
		return "the version isn't above the previous one"
	case was == nil:
		return ""
	case is.Version == was.Version:
		if was.State == v1.ListSettled && is.State != v1.ListSettled ||
			formatMembers(is.Members) != formatMembers(was.Members) ||
			!equality.Semantic.DeepEqual(is.Previous, was.Previous) {
			return "the list has changed under the same version"
		}
		if was.LeaseMillis != 0 && is.LeaseMillis != was.LeaseMillis {
			return "the lease has changed under the same version"
		}
		for pod, identity := range was.Identities {
			if is.Identities[pod] != identity {
				return "an identity has changed under the same version"
			}
		}
	case is.Version < was.Version || was.State != v1.ListSettled || is.State != v1.ListAdopting ||
		is.Previous.Version != was.Version || formatMembers(is.Previous.Members) != formatMembers(was.Members) ||
		!maps.Equal(is.Previous.Identities, was.Identities):
		return "the list is not a successor"
	}
	return ""
}

// checkLease checks that a list doesn't get another lease after it was published: agents may have granted
// for the first one.
func (s *simulation) checkLease(before, document *control.Document) {
	lease, version := document.Group.Safety.LongestLeaseMillis, document.Group.Version
	if before != nil && before.Group.Version == version && before.Group.Safety.LongestLeaseMillis != lease {
		s.t.Errorf("version %d: got leases of %d and %d ms", version, before.Group.Safety.LongestLeaseMillis, lease)
	}
}

// checkList checks the invariants when a list is written to the status. A list loses its majority when so many members
// have adopted a later list, or have ended, that the others are no majority. All lists before the previous one must
// have lost their majority, and when a list settles, so must the previous one.
func (s *simulation) checkList(list *v1.MemberList) {
	known := s.published[list.Version]
	if known != nil && formatMembers(known.Members) != formatMembers(list.Members) {
		s.t.Errorf("version %d: got members %s and %s", list.Version, formatMembers(known.Members),
			formatMembers(list.Members))
	}
	s.published[list.Version] = list
	for version, old := range s.published {
		if previous := list.Previous; previous == nil || version > previous.Version ||
			version == previous.Version && list.State != v1.ListSettled {
			continue
		}
		if !s.lostMajority(version, old) {
			s.t.Errorf("got list %s, but a majority can still elect with version %d: %s", formatList(list), version,
				formatMembers(old.Members))
		}
	}
}

// lostMajority reports whether a list has lost its majority. Only a process with the identity that the list names for a
// member votes as that.
func (s *simulation) lostMajority(version int64, list *v1.MemberList) bool {
	if s.lost[version] {
		return true
	}
	// A process that holds the office by this list requests grants for its lease, and no member grants for longer.
	lease := time.Duration(list.LeaseMillis) * time.Millisecond
	count := 0
	for _, m := range list.Members {
		over := true
		for _, a := range s.allAgents[m.Pod] {
			until, still := a.usedUntil(version)
			votes := a.identity == string(list.Identities[m.Pod])
			over = over && (!votes || !still && !s.now.Before(until.Add(lease)))
		}
		if over {
			count++
		}
	}
	s.lost[version] = count > len(list.Members)/2
	return s.lost[version]
}

// The part of the simulation that is about lists that wait for a majority: operators that
// aren't connected to any agent for some time, and what they must not publish.

// majorityGrace is the simulation's MajorityGrace, and maxCutOff the longest time without
// connections that must not matter.
const (
	majorityGrace = 2 * time.Second
	maxCutOff     = 1900 * time.Millisecond
)

// cutOff ends an operator's connections to all agents for some time, unless no majority was
// connected before: then the operator can't know that a majority is up again.
func (s *simulation) cutOff(o *operator) {
	if !o.majorityLostAt.IsZero() {
		return
	}
	o.cutOffUntil = s.now.Add(time.Duration(s.rng.Int64N(int64(maxCutOff))))
}

// isConnected reports whether an operator is connected to the agent of a pod.
func (s *simulation) isConnected(o *operator, name string) bool {
	a := s.agent(name)
	return a != nil && a.connected && !s.now.Before(o.cutOffUntil)
}

// observeMajority is what an operator does whenever an agent is connected or disconnected: it
// notes since when no majority of the members has been connected.
func (s *simulation) observeMajority(o *operator) {
	list := o.group.Status.Protocol.MemberList
	if list == nil {
		return
	}
	up := map[string]bool{}
	for _, name := range allNames {
		up[name] = s.isConnected(o, name)
	}
	if hasMajority(list.Members, up) {
		o.majorityLostAt = time.Time{}
	} else if o.majorityLostAt.IsZero() {
		o.majorityLostAt = s.now
	}
}

// upAndConnected returns the pods that are up, and connected to an operator that isn't cut off.
func (s *simulation) upAndConnected() map[string]bool {
	up := map[string]bool{}
	for _, name := range allNames {
		a := s.agent(name)
		up[name] = a != nil && a.connected
	}
	return up
}

func hasMajority(members []v1.Member, up map[string]bool) bool {
	count := 0
	for _, m := range members {
		if up[m.Pod] {
			count++
		}
	}
	return count > len(members)/2
}

// checkMajority checks that an operator didn't publish a list that costs the group its
// coordinator: when it decided, the list before had a majority, and this one had none.
func (s *simulation) checkMajority(o *operator, before, list *v1.MemberList) {
	if before == nil || list.Version == before.Version || samePods(before.Members, list.Members) {
		return
	}
	if hasMajority(before.Members, o.up) && !hasMajority(list.Members, o.up) {
		s.t.Errorf("got list %s, which has no majority, while the one before has one: %s", formatList(list),
			formatMembers(before.Members))
	}
}

// The part of the simulation that is about Strict mode: pods that run on although the API
// server considers them failed and deleted.

func (s *simulation) strict() bool { return s.group.Spec.Safety.Mode == v1.Strict }

// disrupt ends a pod, or in Strict mode, may also remove its node.
func (s *simulation) disrupt(name string) {
	switch {
	case !s.strict():
		s.endPod(name)
	case s.rng.IntN(2) == 0:
		s.removeNode(name)
	default:
		s.stopPod(name)
	}
}

// removeNode removes the node of a pod that is cut off, and runs on. The garbage collector
// of pods marks the pod as failed, and force-deletes it.
func (s *simulation) removeNode(name string) {
	pod := s.pods[name].DeepCopy()
	pod.Status.Phase = corev1.PodFailed
	pod.DeletionTimestamp = new(metav1.NewTime(s.now))
	s.pods[name] = pod
	if a := s.agent(name); a != nil {
		a.connected = false
	}
}

// stopPod stops a pod, and its kubelet reports that.
func (s *simulation) stopPod(name string) {
	pod := s.pods[name].DeepCopy()
	pod.Status.Phase = corev1.PodFailed
	pod.DeletionTimestamp = new(metav1.NewTime(s.now))
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{agentStatus(terminated)}
	s.pods[name] = pod
	s.endAgent(pod)
}

// release removes the finalizer of pods. They are being deleted, so they disappear.
func (s *simulation) release(pods []*corev1.Pod) {
	for _, pod := range pods {
		now := s.pods[pod.Name]
		if now == nil || now.UID != pod.UID {
			continue
		}
		if s.agents[pod.UID] != nil {
			s.t.Errorf("%s was released, but its agent runs", pod.Name)
		}
		delete(s.pods, pod.Name)
	}
}

// facts returns the facts as an operator knows them.
func (s *simulation) facts(o *operator) Facts {
	f := Facts{
		Group: o.group, Now: s.now.Add(o.skew), FirstListComplete: true, Nodes: map[string]*corev1.Node{},
		Connected: map[types.UID]bool{}, Identities: map[string]string{}, Adopted: map[string]bool{},
		Missing: map[string]bool{},
	}
	if o.document != nil {
		f.Published, f.Revision = &o.document.Published, o.document.Published.Revision
	}
	wait := AdoptionWait(o.group)
	has := func(fact string, is bool) bool {
		if !is {
			delete(o.since, fact)
			return false
		}
		if _, known := o.since[fact]; !known {
			o.since[fact] = s.now
		}
		return s.now.Sub(o.since[fact]) >= wait
	}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		pod := s.pods[name]
		f.Pods = append(f.Pods, pod)
		if f.Connected[pod.UID] = s.isConnected(o, name); f.Connected[pod.UID] {
			o.identities[pod.UID] = s.agent(name).identity
		}
		f.Identities[name] = o.identities[pod.UID]
	}
	s.observeMajority(o)
	f.MajorityLost = !o.majorityLostAt.IsZero() && s.now.Sub(o.majorityLostAt) >= majorityGrace
	list := o.group.Status.Protocol.MemberList
	for _, name := range allNames {
		if list == nil {
			break
		}
		pod, a := s.pods[name], s.agent(name)
		// The operator learns of a new pod late.
		there := !Gone(o.group, pod, nil) && s.now.Sub(pod.CreationTimestamp.Time) > staleness
		f.Missing[name] = has(fmt.Sprint("missing ", name, list.Version), !there)
		if s.isConnected(o, name) {
			f.Adopted[name] = has(fmt.Sprint("adopted ", pod.UID, list.Version), int64(a.version) >= list.Version)
		}
	}
	return f
}

// writeStatus writes the status as the API server does: it compares resource versions,
// and then checks the rules of the schema.
func (s *simulation) writeStatus(o *operator) {
	list := o.plan.List
	if o.plan.Document == nil || o.document != nil && o.document.Published == o.plan.Published {
		return
	}
	if o.group.ResourceVersion != s.group.ResourceVersion {
		o.plan = nil // A conflict: the operator has to read the group again.
		return
	}
	if why := violation(s.group.Status.Protocol.MemberList, list); why != "" {
		s.t.Errorf("got list %[2]s after %[1]s: %[3]s", formatList(s.group.Status.Protocol.MemberList), formatList(list), why)
	}
	stored := list.DeepCopy()
	s.bumpResourceVersion()
	if !equality.Semantic.DeepEqual(stored, s.group.Status.Protocol.MemberList) {
		s.checkMajority(o, s.group.Status.Protocol.MemberList, stored)
		s.group.Status.Protocol.MemberList = stored
		s.checkList(list)
	}
	s.writeDocument(o)
	o.group, o.document = s.group.DeepCopy(), s.document
}

// writeDocument writes the document, which is in the same status update.
func (s *simulation) writeDocument(o *operator) {
	next := o.plan
	if known, ok := s.digests[next.Published.Revision]; ok && known != next.Published.Digest {
		s.t.Errorf("revision %d was published with two digests", next.Published.Revision)
	}
	s.digests[next.Published.Revision] = next.Published.Digest
	if s.document != nil {
		s.checkLease(s.document.Document, next.Document)
	}
	s.document = next
}
