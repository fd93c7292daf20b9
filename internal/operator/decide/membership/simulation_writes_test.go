package membership

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// facts returns the facts as an operator knows them.
func (s *simulation) facts(o *operator) Facts {
	f := Facts{
		Group: o.group, Now: s.now, FirstListComplete: true, Nodes: map[string]*corev1.Node{},
		Connected: map[types.UID]bool{}, Adopted: map[string]bool{}, Missing: map[string]bool{},
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
		f.Connected[pod.UID] = s.isConnected(o, name)
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
