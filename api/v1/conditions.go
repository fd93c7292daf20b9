package v1

// ConditionType is the type of a condition of a group.
type ConditionType string

// The types of conditions. For each but Progressing, Degraded and Stalled, True is the normal state.
const (
	// ConditionReady means that the group is available, that the agents use the newest
	// member list and settings, and that labels and Service point at the coordinator. A
	// member that is down doesn't matter. Tools that deploy manifests wait for this
	// condition.
	ConditionReady ConditionType = "Ready"
	// ConditionAvailable means that there is a coordinator, and that all agents that report
	// agree on it. Users of the coordinator wait for this condition.
	ConditionAvailable ConditionType = "Available"
	// ConditionProgressing means that the agents are adopting a new member list or new
	// settings.
	ConditionProgressing ConditionType = "Progressing"
	// ConditionDegraded means that a member is down, or that the operator cannot do all
	// that the spec says. The group may be available nevertheless.
	ConditionDegraded ConditionType = "Degraded"
	// ConditionStalled means that the group stays as it is until a user resolves the reason. A
	// group has it only while it is True: tools that wait for Ready then stop waiting.
	ConditionStalled ConditionType = "Stalled"
	// ConditionAgentsConnected means that the operator is connected to the agent of each
	// member.
	ConditionAgentsConnected ConditionType = "AgentsConnected"
)

// Reason is the reason of a condition.
type Reason string

// Reasons of more than one condition.
const (
	// ReasonNoReports (Unknown): no agent has reported yet.
	ReasonNoReports Reason = "NoReports"
	// ReasonNoMembers (False): the selector matches no pods.
	ReasonNoMembers Reason = "NoMembers"
	// ReasonInvalidMembers (False): the selector matches pods that have no valid name or
	// priority, or only pods with priority 0.
	ReasonInvalidMembers Reason = "InvalidMembers"
	// ReasonTooManyMembers (False): the selector matches more than MaxMembers pods.
	ReasonTooManyMembers Reason = "TooManyMembers"
	// ReasonTooManyGroups (False): the namespace has as many groups as the operator serves there.
	ReasonTooManyGroups Reason = "TooManyGroups"
	// ReasonEarlierGroup (False): agents still participate in a deleted group of the same
	// name.
	ReasonEarlierGroup Reason = "EarlierGroup"
	// ReasonStatusBehind (False): agents use a newer member list than the one in the
	// status.
	ReasonStatusBehind Reason = "StatusBehind"
	// ReasonWaitingForMembers (False): the member list doesn't change yet, because no majority
	// of the wanted members is connected, while a majority of the present ones is.
	ReasonWaitingForMembers Reason = "WaitingForMembers"
	// ReasonStopUnconfirmed (False): in Strict mode, it is unknown whether deleted pods
	// have stopped, and a user has to confirm it.
	ReasonStopUnconfirmed Reason = "StopUnconfirmed"
)

// Reasons of Ready, Available, Progressing and Degraded. True and False are those of Ready.
const (
	// ReasonHealthy (True): the group is healthy.
	ReasonHealthy Reason = "Healthy"
	// ReasonSettled is the reason of Progressing (False): the agents use the newest member
	// list and settings.
	ReasonSettled Reason = "Settled"
	// ReasonNoFailover (True): the group is healthy, but no other member can take over.
	// There is one member, one member with a priority above 0, or there are two members and
	// a coordinator needs a majority.
	ReasonNoFailover Reason = "NoFailover"
	// ReasonMembersDown (True): some members are neither Coordinator nor Normal.
	ReasonMembersDown Reason = "MembersDown"
	// ReasonAdopting (False): the agents are adopting a new member list.
	ReasonAdopting Reason = "Adopting"
	// ReasonWriteFailed (False): the API server rejects a write of the operator.
	ReasonWriteFailed Reason = "WriteFailed"
	// ReasonCAMissing (False): the operator does not start, because the Secret of its CA
	// was deleted.
	ReasonCAMissing Reason = "CAMissing"
	// ReasonServiceConflict (False): the Service or its EndpointSlice does not belong to the
	// group, or the Service has a selector.
	ReasonServiceConflict Reason = "ServiceConflict"
	// ReasonServicesForbidden (False): the operator lacks the permission for Services and EndpointSlices.
	ReasonServicesForbidden Reason = "ServicesForbidden"
	// ReasonPortMissing (False): no container of the coordinator's pod has a port with the name of
	// a targetPort.
	ReasonPortMissing Reason = "PortMissing"
)

// Reasons why there is no coordinator, or agents don't agree on it: of Ready and Available.
const (
	// ReasonElected is the reason of Available (True): the agents agree on the coordinator.
	ReasonElected Reason = "Elected"
	// ReasonElecting (False): an election is in progress.
	ReasonElecting Reason = "Electing"
	// ReasonNoMajority (False): fewer than a majority of the members are up.
	ReasonNoMajority Reason = "NoMajority"
	// ReasonNoEligibleMember (False): none of the members that are up is eligible.
	ReasonNoEligibleMember Reason = "NoEligibleMember"
	// ReasonMembersTooSlow (False): the agents answer each other so slowly that no coordinator
	// could renew its lease.
	ReasonMembersTooSlow Reason = "MembersTooSlow"
	// ReasonCoordinatorsDiffer (False; Ready is True if a majority agrees, with this and the next two reasons): agents
	// report different coordinators.
	ReasonCoordinatorsDiffer Reason = "CoordinatorsDiffer"
	// ReasonListsDiffer (False): agents have different member lists of the same version.
	ReasonListsDiffer Reason = "ListsDiffer"
	// ReasonSettingsDiffer (False, and of Progressing True): some agents have not applied the newest settings.
	// The group is available nevertheless.
	ReasonSettingsDiffer Reason = "SettingsDiffer"
)

// Reasons of AgentsConnected.
const (
	// ReasonConnected (True): the agent of each member is connected.
	ReasonConnected Reason = "Connected"
	// ReasonUnreachable (False): the operator cannot reach some agents.
	ReasonUnreachable Reason = "Unreachable"
	// ReasonPodsMissing (False): some members have no pod with the label.
	ReasonPodsMissing Reason = "PodsMissing"
	// ReasonNoAgent (False): some pods run without an agent, because they were created before
	// it could be injected.
	ReasonNoAgent Reason = "NoAgent"
)
