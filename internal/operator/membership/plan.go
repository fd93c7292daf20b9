package membership

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Facts are all that a plan is made from.
type Facts struct {
	Group *v1.ElectionGroup
	// Pods are those of the namespace that may concern the group: declared,
	// selected, or on a list. Others do no harm.
	Pods []*corev1.Pod
	// Nodes are the pods' nodes by name; some may be lacking.
	Nodes map[string]*corev1.Node
	// Connected are the pods whose agent's stream is open and current, and who can
	// take part in the group: their pods named it when they were made.
	Connected map[types.UID]bool
	// InEarlierGroup are the pods whose agents are connected, and take part in an earlier
	// group of this name.
	InEarlierGroup []string
	// Versions are those of the lists that agents of this group last said they go by,
	// by the pod's name.
	Versions map[string]int64
	// Adopted are the members of the previous list, by the pod's name, that have
	// reported the list in force for as long as AdoptionWait says.
	Adopted map[string]bool
	// Missing are the members of the list and of the previous one that have had
	// no pod, or one that has Finished, for as long as MissingPodGrace says. The wait begins
	// anew with each version, when the ConfigMap has it: a pod that came before may
	// have begun with the version before, and the operator learn of it late.
	Missing map[string]bool
	// FirstListComplete: the first list of a selector's waits for no more agents.
	FirstListComplete bool
	// Published is what the ConfigMap of this group has, nil if there is none, or
	// if it is OwnedByOther.
	Published *control.Document
	// Revision is the highest that any ConfigMap of this name is known to have had.
	Revision int64
	// CABundle are the certificates of all authorities, in PEM.
	CABundle string
	// ConfigMap, Service and EndpointSlice are those of the wanted names, whoever
	// has made them; nil if there is none.
	ConfigMap     *corev1.ConfigMap
	Service       *corev1.Service
	EndpointSlice *discoveryv1.EndpointSlice
	Now           time.Time
}

// Problem is why there is no list, or not the one that is wanted.
type Problem struct {
	Reason  v1.Reason
	Message string
}

// Plan is what should be there.
type Plan struct {
	// List is what status.memberList should be; nil if there can't be one yet.
	List    *v1.MemberList
	Problem *Problem
	// StatusBehind: agents go by a newer list than any that is known. What comes after it
	// nobody can tell, nor who is no member.
	StatusBehind bool
	// Document and ConfigMap are nil without a list, if that has been overtaken, or if
	// the name is taken.
	Document          *control.Document
	ConfigMap         *corev1.ConfigMap
	ConfigMapConflict bool
	// Service is nil if none is wanted, or if the name is taken: by somebody else's,
	// or by one that selects pods itself.
	Service                                                    *corev1.Service
	ServiceConflict, ServiceHasSelector, EndpointSliceConflict bool
}

// MakePlan makes a plan.
func MakePlan(f Facts) Plan {
	var p Plan
	newest := f.newestList()
	ahead := f.agentsAhead(newest)
	p.StatusBehind = len(ahead) > 0
	p.List, p.Problem = nextList(&f, newest, ahead)
	p.ConfigMapConflict = f.configMapConflict()
	if p.List != nil && !p.ConfigMapConflict && !p.StatusBehind {
		document := f.document(p.List)
		p.Document = &document
		p.ConfigMap = configMap(f.Group, document, f.CABundle)
	}
	p.ServiceConflict, p.ServiceHasSelector = f.serviceConflict()
	if f.Group.Spec.Service != nil && !p.ServiceConflict && !p.ServiceHasSelector {
		p.Service = wantedService(f.Group)
	}
	p.EndpointSliceConflict = p.Service != nil && f.EndpointSlice != nil && OwnedByOther(f.EndpointSlice, f.Group)
	return p
}

// AdoptionWait is how long a member must have reported a list before it counts as having
// adopted it: what it granted before has run out by then, on any clock. In Available
// mode nothing is granted.
func AdoptionWait(group *v1.ElectionGroup) time.Duration {
	if group.Spec.Safety.Mode == v1.Available {
		return 0
	}
	return time.Duration(leaseMillis(group)) * time.Millisecond * 9 / 8
}

// respite is how long a member of a selector's list has no pod, at least, before it is
// taken out: a StatefulSet makes another one of the name within that time.
const minMissingPodGrace = time.Second

// MissingPodGrace is how long a member must have had no pod before it counts as departed, while
// a list is being adopted, or before it leaves the list.
func MissingPodGrace(group *v1.ElectionGroup) time.Duration {
	if list := group.Status.MemberList; list != nil && list.State == v1.ListAdopting {
		return AdoptionWait(group)
	}
	return max(AdoptionWait(group), minMissingPodGrace)
}

// Finished reports whether a pod has ended for good.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
