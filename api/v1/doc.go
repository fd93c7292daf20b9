// Package v1 is what users and the operator say to each other through the API
// server: the ElectionGroup, and every label, annotation and reason by name.
//
// What the schema can refuse, it refuses: a group that was accepted is one that
// agents can run, but for what only the cluster knows (whether the pods exist,
// what a selector finds). The bounds and the rules are those of the agent's own
// configuration. They need Kubernetes 1.33 or later, whose CEL has comprehensions
// of two variables.
//
// +kubebuilder:object:generate=true
// +groupName=conclave.dev
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of these types.
var GroupVersion = schema.GroupVersion{Group: "conclave.dev", Version: "v1"}

var builder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ElectionGroup{}, &ElectionGroupList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
})

// AddToScheme makes the types known to a scheme.
var AddToScheme = builder.AddToScheme
