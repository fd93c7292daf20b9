package controllers

// The permissions of the controllers. electiongroups/finalizers is for clusters that require it of the owner of an
// object with blockOwnerDeletion; the operator adds no finalizers to groups. Those of pods need patch. The permission
// for Services is optional, and therefore a role of its own: config/rbac/services.yaml.
//
// +kubebuilder:rbac:groups=conclave.dev,resources=electiongroups,verbs=get;list;watch
// +kubebuilder:rbac:groups=conclave.dev,resources=electiongroups/status,verbs=update
// +kubebuilder:rbac:groups=conclave.dev,resources=electiongroups/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create
