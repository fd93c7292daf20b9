package v1

// ConditionType is the type of a condition of a group.
type ConditionType string

// The conditions. True is the good news in each.
const (
	// Ready: there is a coordinator, all agree on it, and every member is there.
	Ready ConditionType = "Ready"
	// CoordinatorElected: somebody leads.
	CoordinatorElected ConditionType = "CoordinatorElected"
	// Agreed: no two agents name different coordinators, or go by different
	// lists or settings.
	Agreed ConditionType = "Agreed"
	// AgentsConnected: the operator hears the agent of each member.
	AgentsConnected ConditionType = "AgentsConnected"
)

// Reason is why a condition is as it is.
type Reason string

// Reasons of more than one condition.
const (
	// ReasonNoReports (Unknown): no agent has said anything yet.
	ReasonNoReports Reason = "NoReports"
	// ReasonNoMembers (False): the selector finds no pods.
	ReasonNoMembers Reason = "NoMembers"
	// ReasonInvalidMembers (False): the selector finds pods that can't be members, or can't
	// get the priority that they should have, or none that could lead.
	ReasonInvalidMembers Reason = "InvalidMembers"
	// ReasonTooManyMembers (False): the selector finds more than MaxMembers pods.
	ReasonTooManyMembers Reason = "TooManyMembers"
	// ReasonEarlierGroup (False): agents are still in an earlier group of the name.
	ReasonEarlierGroup Reason = "EarlierGroup"
	// ReasonStatusBehind (False): agents go by a newer member list than the status has.
	ReasonStatusBehind Reason = "StatusBehind"
	// ReasonConfigMapConflict (False): the ConfigMap that agents mount belongs to somebody else.
	ReasonConfigMapConflict Reason = "ConfigMapConflict"
)

// Reasons of Ready.
const (
	// ReasonHealthy (True): all is as it should be.
	ReasonHealthy Reason = "Healthy"
	// ReasonNoFailover (True): all is well, but nobody could take over: a single
	// member, a single one with a priority above 0, or two where a majority is needed.
	ReasonNoFailover Reason = "NoFailover"
	// ReasonNoCoordinator (False): see CoordinatorElected.
	ReasonNoCoordinator Reason = "NoCoordinator"
	// ReasonDisagreement (False): see Agreed.
	ReasonDisagreement Reason = "Disagreement"
	// ReasonMembersDown (False): some members are neither Coordinator nor Normal.
	ReasonMembersDown Reason = "MembersDown"
	// ReasonAdopting (False): the agents go over to another member list.
	ReasonAdopting Reason = "Adopting"
	// ReasonWriteFailed (False): the API server refuses a write of the operator's.
	ReasonWriteFailed Reason = "WriteFailed"
	// ReasonServiceConflict (False): the Service or its EndpointSlice belongs to somebody
	// else, or the Service has a selector.
	ReasonServiceConflict Reason = "ServiceConflict"
)

// Reasons of CoordinatorElected.
const (
	// ReasonElected (True): somebody leads.
	ReasonElected Reason = "Elected"
	// ReasonElecting (False): an election is under way.
	ReasonElecting Reason = "Electing"
	// ReasonNoMajority (False): no majority of the members is connected.
	ReasonNoMajority Reason = "NoMajority"
	// ReasonNoEligibleMember (False): no live member stands.
	ReasonNoEligibleMember Reason = "NoEligibleMember"
)

// Reasons of Agreed.
const (
	// ReasonAgreed (True): all agents say the same.
	ReasonAgreed Reason = "Agreed"
	// ReasonCoordinatorsDiffer (False): agents name different coordinators.
	ReasonCoordinatorsDiffer Reason = "CoordinatorsDiffer"
	// ReasonListsDiffer (False): agents have different lists of the same version.
	ReasonListsDiffer Reason = "ListsDiffer"
	// ReasonSettingsDiffer (False): some agents still run with older settings.
	ReasonSettingsDiffer Reason = "SettingsDiffer"
)

// Reasons of AgentsConnected.
const (
	// ReasonConnected (True): the agent of each member is heard.
	ReasonConnected Reason = "Connected"
	// ReasonUnreachable (False): agents don't answer.
	ReasonUnreachable Reason = "Unreachable"
	// ReasonPodsMissing (False): declared members have no pods.
	ReasonPodsMissing Reason = "PodsMissing"
	// ReasonNoAgent (False): pods run without an agent: they were there before
	// the group, or lack the label.
	ReasonNoAgent Reason = "NoAgent"
)
