// Package control defines the protocol between the operator and the agents: the documents that configure an agent's
// groups, the reports that agents send, and how an agent gets its certificate.
//
//	operator -> agent   https://POD:7375     both sides present certificates
//	agent -> operator   https://conclave-identity.NAMESPACE.svc     the agent presents a token
//
// Agents elect without the operator.
package control

import "github.com/conclave-dev/conclave/internal/protocol/identity"

// The ports of an agent in a pod.
const (
	// PeerPort accepts connections from other agents.
	PeerPort = 7373
	// LocalPort serves the API on loopback, for applications.
	LocalPort = 7374
	// OperatorPort accepts connections from the operator.
	OperatorPort = 7375
	// ServicePort1 accepts connections of clients, at the first port of a Service. Further ports follow.
	ServicePort1 = 7600
)

// Operator is the name in the operator's certificate. No group has this name: a namespace can't contain a dot.
var Operator = identity.Name{Domain: "conclave.dev", Group: "operator", Member: "manager"}

// MetricsReader is the name in the certificate of a program that may read an agent's
// metrics and the reasons why it isn't ready, and nothing else.
var MetricsReader = identity.Name{Domain: "conclave.dev", Group: "operator", Member: "metrics"}

// Witness is the name in the certificate of a witness, which is a member of groups in all namespaces: those whose lists
// have its UID.
func Witness(pod string) identity.Name {
	return identity.Name{Domain: "conclave.dev", Group: "witness", Member: pod}
}

// NamespacePath returns the path of a namespace in a witness. Those of an agent's API for the operator are below it.
func NamespacePath(namespace string) string { return "/v1/namespaces/" + namespace }

// The paths of an agent's API for the operator. Those with {group} are formatted by GroupPath.
const (
	// ReportsPath streams the agent's reports as server-sent events: GET.
	ReportsPath = "/v1/reports"
	// GroupsPath is the prefix of a group's path: PUT a Document to join or update the group, or DELETE with
	// ?uid=UID&revision=N to leave it, unless the agent has a document with a higher revision.
	GroupsPath = "/v1/groups/"
	// StepDownPath below a group: POST {"to":"ledger-1"} makes the coordinator hand over.
	StepDownPath = "/step-down"
	// EligibilityPath below a group: PUT {"eligible":false} excludes the member until
	// PUT {"eligible":true}. A coordinator hands over first.
	EligibilityPath = "/eligibility"
)

// NotReady ends the error if the coordinator can't hand over to the named member.
const NotReady = "is not ready to take over"

// GroupPath returns the path of a group.
func GroupPath(group string) string { return GroupsPath + group }

// The events of the report stream. When a connection opens, the agent sends its present state: one EventGroup for each
// group, and then EventCurrent. After that it sends a group's report whenever anything in the report has changed.
const (
	// EventGroup carries a Report.
	EventGroup = "group"
	// EventLeft carries a Left: the agent has left the group.
	EventLeft = "left"
	// EventCurrent carries an Agent: the present state is complete.
	EventCurrent = "current"
)

// CertificatesPath is the operator's path to which an agent POSTs an EnrollmentRequest.
const CertificatesPath = "/v1/certificates"

// EnrollmentRequest requests a certificate.
type EnrollmentRequest struct {
	// Token is the pod's service-account token for the audience conclave.dev.
	Token string `json:"token"`
	// Request is a certificate request in PEM. The operator uses its public key only.
	Request string `json:"request"`
}

// EnrollmentResponse has the agent's certificate.
type EnrollmentResponse struct {
	// Certificate, in PEM, is for the pod in each group of its annotation.
	Certificate string `json:"certificate"`
	// CABundle has the certificates of all CAs to trust, in PEM.
	CABundle string `json:"authorities"`
}

// ErrorResponse is the body of every response that reports a failure.
type ErrorResponse struct {
	Error string `json:"error"`
	// Revision is the lowest one that the agent accepts, if it refuses a document because of its revision.
	Revision int64 `json:"revision,omitempty"`
}
