// Package v1 contains the API of Conclave: the ElectionGroup, and the names of its
// labels, annotations and condition reasons.
//
// The schema validates all that can be validated without the cluster: agents can run
// each group that the API server accepts. Its bounds and rules are the same as those
// of the agent's configuration file. Problems that depend on the cluster, such as
// missing pods, are reported in conditions. The rules need Kubernetes 1.33 or later,
// for CEL comprehensions with two variables.
//
// Settings are in milliseconds, as their names say. What was measured is in microseconds:
// a hand-over takes less than a millisecond.
//
// +kubebuilder:object:generate=true
// +groupName=conclave.dev
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of these types.
var GroupVersion = schema.GroupVersion{Group: "conclave.dev", Version: "v1"}

var builder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ElectionGroup{}, &ElectionGroupList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
})

// AddToScheme adds the types to a scheme.
var AddToScheme = builder.AddToScheme
