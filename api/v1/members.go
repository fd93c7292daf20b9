package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The bounds of a group.
const (
	// MaxMembers is how many pods a group can have.
	MaxMembers = 1000
	// MaxPriority leaves room for the term in a fencing token.
	MaxPriority = 1<<20 - 1
	// MaxNameLength bounds a group's name, which is a part of a label.
	MaxNameLength = 63
)

// Member is a pod that takes part.
type Member struct {
	// pod is the name of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$')",message="must be the name of a pod, such as ledger-0: lower-case letters, digits and - with dots between such words"
	Pod string `json:"pod"`

	// priority ranks the members: the highest that is alive is elected. No two
	// have the same one, but for 0, which means: keeps a row in the table and
	// counts for majorities, but never stands.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048575
	Priority int32 `json:"priority"`
}

// PodSelector finds pods by their labels: all its requirements must hold.
//
// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="give matchLabels or matchExpressions: an empty selector would find every pod of the namespace"
type PodSelector struct {
	// matchLabels are labels that a pod must have, each with this value.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 317 && key.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",message="each key must be that of a label, such as app or example.org/app"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions are requirements on a pod's labels.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// LabelSelector is the selector in the terms of apimachinery.
func (s *PodSelector) LabelSelector() *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	for key, value := range s.MatchLabels {
		metav1.AddLabelToSelector(selector, key, string(value))
	}
	for _, r := range s.MatchExpressions {
		requirement := metav1.LabelSelectorRequirement{Key: r.Key, Operator: metav1.LabelSelectorOperator(r.Operator)}
		for _, value := range r.Values {
			requirement.Values = append(requirement.Values, string(value))
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

// LabelRequirement is what a selector requires of one label.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] == (has(self.values) && size(self.values) > 0)",message="In and NotIn need values; Exists and DoesNotExist have none"
type LabelRequirement struct {
	// key is the label's key.
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$')",message="must be the key of a label, such as app or example.org/app"
	Key string `json:"key"`

	// operator is the relation of the label's value to values.
	// +required
	Operator LabelOperator `json:"operator"`

	// values are those that In and NotIn compare with.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Values []LabelValue `json:"values,omitempty"`
}

// LabelOperator is the relation of a label's value to a set.
//
// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
type LabelOperator string

// The operators.
const (
	// In: the pod has the label, with one of the values.
	In LabelOperator = "In"
	// NotIn: the pod lacks the label, or has it with another value.
	NotIn LabelOperator = "NotIn"
	// Exists: the pod has the label.
	Exists LabelOperator = "Exists"
	// DoesNotExist: the pod lacks the label.
	DoesNotExist LabelOperator = "DoesNotExist"
)

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$')",message="must be the value of a label: letters, digits, -, _ and ., with a letter or a digit at both ends"
type LabelValue string

// PriorityFrom says where the priorities of selected pods come from. Of pods of
// the same rank, those that are members already are above those that join, or
// each new pod would take over; those that join together are ordered by name. The
// priorities that result are unique and keep this order; they needn't be the
// numbers that they come from.
//
// +kubebuilder:validation:XValidation:rule="[has(self.ordinal), has(self.annotation), has(self.nodeLabel)].filter(given, given).size() == 1",message="give exactly one of ordinal, annotation and nodeLabel"
type PriorityFrom struct {
	// ordinal takes the number at the end of the pod's name, which a StatefulSet
	// gives it. HighestFirst prefers the highest as coordinator, LowestFirst the
	// lowest.
	// +optional
	Ordinal OrdinalOrder `json:"ordinal,omitempty"`

	// annotation is the key of a pod's annotation whose value is a whole number
	// from 0 to 1048575, such as conclave.dev/priority: the higher, the better,
	// and 0 never stands. A pod without it counts as 1.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$')",message="must be the key of an annotation, such as conclave.dev/priority"
	Annotation string `json:"annotation,omitempty"`

	// nodeLabel is the key of a label of the pod's node, with such a number as
	// its value. A pod on a node without it counts as 1.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$')",message="must be the key of a label, such as tier or example.org/tier"
	NodeLabel string `json:"nodeLabel,omitempty"`
}

// OrdinalOrder says which end of a StatefulSet comes first.
//
// +kubebuilder:validation:Enum=HighestFirst;LowestFirst
type OrdinalOrder string

// The orders.
const (
	// HighestFirst: the highest ordinal is preferred as coordinator.
	HighestFirst OrdinalOrder = "HighestFirst"
	// LowestFirst: the lowest is, which a StatefulSet removes last.
	LowestFirst OrdinalOrder = "LowestFirst"
)
