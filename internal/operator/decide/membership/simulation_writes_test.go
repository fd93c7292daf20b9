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
		Group: o.group, Published: o.document, Now: s.now, FirstListComplete: true, Nodes: map[string]*corev1.Node{},
		Connected: map[types.UID]bool{}, Adopted: map[string]bool{}, Missing: map[string]bool{},
	}
	if f.Published != nil {
		f.Revision = f.Published.Revision
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
	list := f.newestList()
	for _, name := range allNames {
		if list == nil {
			break
		}
		pod, a := s.pods[name], s.agent(name)
		// The operator learns of a new pod late.
		there := !Gone(o.group, pod, nil) && s.now.Sub(pod.CreationTimestamp.Time) > staleness
		published := f.Published != nil && int64(f.Published.Group.Version) == list.Version
		f.Missing[name] = has(fmt.Sprint("missing ", name, list.Version), published && !there)
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
	if equality.Semantic.DeepEqual(list, o.group.Status.MemberList) {
		return
	}
	if o.group.ResourceVersion != s.group.ResourceVersion {
		o.plan = nil // A conflict: the operator has to read the group again.
		return
	}
	if why := violation(s.group.Status.MemberList, list); why != "" {
		s.t.Errorf("got list %[2]s after %[1]s: %[3]s", formatList(s.group.Status.MemberList), formatList(list), why)
	}
	stored := list.DeepCopy()
	if !equality.Semantic.DeepEqual(stored, s.group.Status.MemberList) {
		s.bumpResourceVersion()
	}
	s.checkMajority(o, s.group.Status.MemberList, stored)
	s.group.Status.MemberList = stored
	o.group = s.group.DeepCopy()
	s.checkList(list)
}

func (s *simulation) writeConfigMap(o *operator) {
	if o.plan.Document == nil || o.document != nil && o.document.Revision == o.plan.Document.Revision {
		return
	}
	if o.configMapWrites != s.configMapWrites {
		o.plan = nil
		return
	}
	s.configMapWrites++
	s.checkLease(s.document, o.plan.Document)
	s.document = o.plan.Document
	o.document, o.configMapWrites = s.document, s.configMapWrites
	at := int64(s.document.Group.Version)
	if known := s.published[at]; known == nil || formatMembers(known.Members) != formatMembers(listMembers(s.document.Group.Members)) {
		s.t.Errorf("version %d was published with members %s, which were not in the status before", at, formatMembers(listMembers(s.document.Group.Members)))
	}
}
