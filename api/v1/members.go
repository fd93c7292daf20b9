package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Limits of a group.
const (
	// MaxMembers is the maximum number of members.
	MaxMembers = 100
	// MaxPriority is the highest priority.
	MaxPriority = 1<<14 - 1
	// MaxNameLength is the maximum length of a group's name, which is part of a label.
	MaxNameLength = 63
)

// Member is a pod in a member list.
type Member struct {
	// pod is the name of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$')",message="must be the name of a pod, such as ledger-0: lowercase letters, digits and hyphens, in parts that are separated by dots"
	Pod string `json:"pod"`

	// priority ranks the members: the live member with the highest priority is
	// elected. Priorities above 0 must be unique. A member with priority 0 votes and
	// has a row in the process status table, but is never elected.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16383
	Priority int32 `json:"priority"`
}

// PodSelector selects pods by their labels. A pod must satisfy all requirements.
//
// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="matchLabels or matchExpressions is required: an empty selector would match every pod in the namespace"
type PodSelector struct {
	// matchLabels is a map of labels that a pod must have, with these values.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 317 && key.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",message="each key must be a label key, such as app or example.org/app"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions is a list of requirements on a pod's labels.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// LabelSelector converts the selector to the type of apimachinery.
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

// LabelRequirement is a requirement on one label.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] == (has(self.values) && size(self.values) > 0)",message="values is required for In and NotIn, and must be empty for Exists and DoesNotExist"
type LabelRequirement struct {
	// key is the key of the label.
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$')",message="must be a label key, such as app or example.org/app"
	Key string `json:"key"`

	// operator relates the label's value to values.
	// +required
	Operator LabelOperator `json:"operator"`

	// values is the set of values for In and NotIn.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Values []LabelValue `json:"values,omitempty"`
}

// LabelOperator relates a label's value to a set of values.
//
// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
type LabelOperator string

// The operators.
const (
	// In: the pod has the label with one of the values.
	In LabelOperator = "In"
	// NotIn: the pod does not have the label, or has it with another value.
	NotIn LabelOperator = "NotIn"
	// Exists: the pod has the label.
	Exists LabelOperator = "Exists"
	// DoesNotExist: the pod does not have the label.
	DoesNotExist LabelOperator = "DoesNotExist"
)

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$')",message="must be a label value: letters, digits, hyphens, underscores and dots, with a letter or a digit at both ends"
type LabelValue string

// PriorityFrom is the source of the selected pods' priorities. The operator assigns
// unique priorities in the order of the source values; they may differ from these
// values. Among pods with the same value, existing members rank above new ones, so
// that a new pod does not take over. New pods with the same value are ordered by name.
//
// +kubebuilder:validation:XValidation:rule="[has(self.ordinal), has(self.annotation), has(self.nodeLabel)].filter(given, given).size() == 1",message="exactly one of ordinal, annotation and nodeLabel must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.order) || !has(self.ordinal)",message="order requires annotation or nodeLabel: ordinals have an order"
type PriorityFrom struct {
	// ordinal derives the priority from the ordinal at the end of the pod's name,
	// which a StatefulSet assigns. HighestFirst prefers the highest ordinal as
	// coordinator, LowestFirst the lowest.
	// +optional
	Ordinal OrdinalOrder `json:"ordinal,omitempty"`

	// annotation is the key of a pod annotation, such as conclave.dev/priority,
	// whose value is an integer from 0 to 16383. A higher value is preferred, and
	// a pod with 0 is never elected. The default is 1.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$')",message="must be an annotation key, such as conclave.dev/priority"
	Annotation string `json:"annotation,omitempty"`

	// nodeLabel is the key of a label of the pod's node whose value is such an
	// integer. The default is 1.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$')",message="must be a label key, such as tier or example.org/tier"
	NodeLabel string `json:"nodeLabel,omitempty"`

	// order lists values of the annotation or the node label, with the most preferred
	// one first, such as the zones in which the coordinator should run. Then values need
	// not be integers. Pods with other values, or without one, come last.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Order []LabelValue `json:"order,omitempty"`
}

// OrdinalOrder defines which end of a StatefulSet is preferred.
//
// +kubebuilder:validation:Enum=HighestFirst;LowestFirst
type OrdinalOrder string

// The orders.
const (
	// HighestFirst: the pod with the highest ordinal is preferred as coordinator.
	HighestFirst OrdinalOrder = "HighestFirst"
	// LowestFirst: the pod with the lowest ordinal is preferred. A StatefulSet
	// removes it last.
	LowestFirst OrdinalOrder = "LowestFirst"
)
