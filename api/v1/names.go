package v1

// What a user writes at a pod.
const (
	// LabelAgent with the value AgentEnabled has an agent put into the pod.
	LabelAgent   = "conclave.dev/agent"
	AgentEnabled = "enabled"

	// AnnotationGroups names the groups that a pod takes part in, by commas.
	AnnotationGroups = "conclave.dev/groups"
	// AnnotationPriority is the usual annotation to take priorities from.
	AnnotationPriority = "conclave.dev/priority"
	// AnnotationProbe is a URL in the pod that says whether its application is
	// well, such as http://127.0.0.1:8080/healthz.
	AnnotationProbe = "conclave.dev/probe"
)

// What the operator writes at a pod: for each group, whether it leads.
const (
	RoleLabelPrefix = "role.conclave.dev/"
	RoleCoordinator = "coordinator"
	RoleFollower    = "follower"
)

// RoleLabel is the key of the label that tells a pod's role in a group.
func RoleLabel(group string) string { return RoleLabelPrefix + group }

// LabelGroup names the group that an object of the operator's belongs to.
const LabelGroup = "conclave.dev/group"

const (
	// AgentContainer is the name of the container that is put into a pod.
	AgentContainer = "conclave-agent"
	// TokenAudience is that of the service-account token which an agent shows to
	// the operator. No API server accepts it.
	TokenAudience = "conclave.dev"
)
