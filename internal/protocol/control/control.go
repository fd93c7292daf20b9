// Package control is what the operator and the agents say to each other: the
// documents that tell an agent its groups, the reports that agents give, and
// how an agent comes by its certificate.
//
//	operator -> agent   https://POD:7375     both sides show certificates
//	agent -> operator   https://conclave-identity.NAMESPACE.svc     the agent shows a token
//
// Neither side needs the other to elect.
package control

import "github.com/conclave-dev/conclave/internal/protocol/identity"

// The ports of an agent in a pod.
const (
	// PeerPort is where agents await each other.
	PeerPort = 7373
	// LocalPort is that of the API on loopback, which applications ask.
	LocalPort = 7374
	// OperatorPort is where the operator is awaited.
	OperatorPort = 7375
)

// Operator is the name in the operator's certificate. No group has it: there is
// no namespace with a dot in its name.
var Operator = identity.Name{Domain: "conclave.dev", Group: "operator", Member: "manager"}

// The paths of an agent's API for the operator. Those with {group} are formatted
// by GroupPath.
const (
	// ReportsPath streams Reports, see Report: GET.
	ReportsPath = "/v1/reports"
	// GroupsPath leads to a group: PUT a Document to have the agent take part, or
	// DELETE with ?uid=UID to have it leave.
	GroupsPath = "/v1/groups/"
	// StepDownPath below a group: POST {"to":"ledger-1"} has the coordinator hand over.
	StepDownPath = "/step-down"
	// Eligible below a group: PUT {"eligible":false} has it stand no more, until
	// it is told otherwise; if it leads, it hands over first.
	EligibilityPath = "/eligibility"
)

// GroupPath is where a group is.
func GroupPath(group string) string { return GroupsPath + group }

// The events of the stream of reports. After the connection has been made, the
// present state comes first: one EventGroup for each group, and then
// EventCurrent. From then on, a group is reported when anything in its report
// has changed.
const (
	// EventGroup has a Report.
	EventGroup = "group"
	// EventLeft has a Left: the agent takes no part in the group any more.
	EventLeft = "left"
	// EventCurrent has an Agent: all has been said.
	EventCurrent = "current"
)
