package describe

import v1 "github.com/conclave-dev/conclave/api/v1"

// runbookFolder is where the runbooks of the alerts are published.
const runbookFolder = "https://github.com/conclave-dev/conclave/blob/main/docs/runbooks/"

// SilenceRunbook is the address of the runbook for an operator that has not shown that it runs.
const SilenceRunbook = runbookFolder + "ConclaveNoLeader.md"

// runbooks has the alerts about problems with these reasons.
var runbooks = map[v1.Reason]string{
	v1.ReasonElecting: "ConclaveNoCoordinator", v1.ReasonNoMajority: "ConclaveNoCoordinator",
	v1.ReasonNoEligibleMember: "ConclaveNoCoordinator", v1.ReasonMembersTooSlow: "ConclaveNoCoordinator",
	v1.ReasonCoordinatorsDiffer: "ConclaveTwoCoordinators",
	v1.ReasonNoReports:          "ConclaveAgentsMissing", v1.ReasonMembersDown: "ConclaveAgentsMissing",
	v1.ReasonUnreachable: "ConclaveAgentsMissing",
	v1.ReasonPodsMissing: "ConclaveAgentsMissing", v1.ReasonNoAgent: "ConclaveAgentsMissing",
	v1.ReasonStatusBehind: "ConclaveStatusBehind", v1.ReasonWriteFailed: "ConclaveWritesRefused",
	reasonFlapping: "ConclaveFlapping", reasonLeaseLapses: "ConclaveFlapping",
}

// runbook returns the address of the runbook for a reason, or "".
func runbook(reason v1.Reason) string {
	if alert := runbooks[reason]; alert != "" {
		return runbookFolder + alert + ".md"
	}
	return ""
}
