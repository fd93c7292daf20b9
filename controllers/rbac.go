package controllers

// The permissions of the controllers. electiongroups/finalizers is for clusters that
// require it of the owner of an object with blockOwnerDeletion; the operator adds no
// finalizers to groups. Those of pods need patch.
//
// +kubebuilder:rbac:groups=conclave.dev,resources=electiongroups,verbs=get;list;watch
// +kubebuilder:rbac:groups=conclave.dev,resources=electiongroups/status,verbs=update
// +kubebuilder:rbac:groups=conclave.dev,resources=electiongroups/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;get
