package v1

import "strings"

// Labels and annotations of pods and namespaces.
const (
	// LabelAgent with the value AgentEnabled opts a pod in to sidecar injection. In a
	// namespace that has opted in, any other value opts a pod out.
	LabelAgent    = "conclave.dev/agent"
	AgentEnabled  = "enabled"
	AgentDisabled = "disabled"

	// LabelInjection with the value InjectionEnabled opts a namespace in: each of its pods
	// that a group selects gets an agent.
	LabelInjection   = "conclave.dev/injection"
	InjectionEnabled = "enabled"

	// AnnotationGroups lists the groups that a pod belongs to, separated by commas. It
	// takes precedence over the selectors and members of groups.
	AnnotationGroups = "conclave.dev/groups"
	// AnnotationSelectedBy lists the groups that select a pod without AnnotationGroups.
	// The operator sets it.
	AnnotationSelectedBy = "conclave.dev/selected-by"
	// AnnotationPriority is the conventional annotation for a pod's priority.
	AnnotationPriority = "conclave.dev/priority"
	// AnnotationProbe is the URL of the application's health check in the pod, such as
	// http://127.0.0.1:8080/healthz.
	AnnotationProbe = "conclave.dev/probe"
	// AnnotationExec is a group, or a group and a container (ledger/app): the command of that container, or of the only
	// one, runs only while the pod is coordinator of the group.
	AnnotationExec = "conclave.dev/exec"
	// AnnotationAgentPrefix begins the annotations that configure the container of the
	// agent, such as conclave.dev/agent-cpu-limit.
	AnnotationAgentPrefix = "conclave.dev/agent-"
)

// AnnotationStepDownBy names, on the pod of a coordinator, the user who asked it to step down: GROUP/TERM USER. An
// admission policy sees to it that users write only their own name.
const AnnotationStepDownBy = "conclave.dev/step-down-by"

// The label that the operator sets on a pod, once for each group: the pod's role.
const (
	RoleLabelPrefix = "role.conclave.dev/"
	RoleCoordinator = "coordinator"
	RoleFollower    = "follower"
)

// RoleLabel returns the key of the label that has a pod's role in a group.
func RoleLabel(group string) string { return RoleLabelPrefix + group }

// CoordinatorDeletionCost is the value of the annotation controller.kubernetes.io/pod-deletion-cost that the operator
// sets on a coordinator's pod that a Deployment owns, unless its author has set one. So other pods are deleted first
// when the Deployment is scaled down or rolled out.
const CoordinatorDeletionCost = "1001"

// AnnotationConfirmStopped is the annotation by which users confirm, on a group in Strict
// mode, that deleted pods have stopped: POD/UID, separated by commas.
const AnnotationConfirmStopped = "conclave.dev/confirm-stopped"

// AnnotationEvacuateUntil is the annotation of a node that coordinators leave, as if the node was cordoned, until a
// time in RFC 3339.
const AnnotationEvacuateUntil = "conclave.dev/evacuate-until"

// LabelChaos is the label by which users permit `kubectl conclave chaos` to inject faults into a group without
// confirmation. Its value is ChaosEnabled.
const (
	LabelChaos   = "conclave.dev/chaos"
	ChaosEnabled = "enabled"
)

// LabelGroup is the label on the operator's objects that has the name of their group.
const LabelGroup = "conclave.dev/group"

// WitnessPrefix begins the names of the operator's witnesses, as members of groups in any namespace. Other pods with
// such a name get no certificate.
const WitnessPrefix = "conclave-witness-"

// IsWitness reports whether a member is a witness of the operator.
func IsWitness(member string) bool { return strings.HasPrefix(member, WitnessPrefix) }

const (
	// AgentContainer is the name of the agent's container in a pod.
	AgentContainer = "conclave-agent"
	// TokenAudience is the audience of the service account token that an agent presents
	// to the identity service. API servers do not accept it.
	TokenAudience = "conclave.dev"
)
