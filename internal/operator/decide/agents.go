package decide

import (
	"maps"
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Command is for the agent of a pod: it has to leave the group that it reports, or else it becomes eligible or not.
type Command struct {
	Pod      string
	Eligible bool
	Leave    *Leave
}

// Leave is a group that an agent reports. A document with a higher revision prevails over the command.
type Leave struct {
	UID      string
	Revision int64
}

// Document is the document of a group. To are the pods whose agents need it, and First those that would begin with it.
type Document struct {
	*control.Document

	Encoded   []byte
	To, First []string
}

// document returns the document of a plan, and who needs it. A pod that the list has removed needs it only until the
// list has settled. After that, the agent gets the command to leave, and a document would make it join the group again.
func (s *step) document(plan *membership.Plan) *Document {
	d := &Document{Document: plan.Document, Encoded: plan.Encoded}
	members := plan.List.Members
	if plan.List.State == v1.ListAdopting && plan.List.Previous != nil {
		members = append(slices.Clip(members), plan.List.Previous.Members...)
	}
	var pods []string
	for _, m := range members {
		if pod := s.Pods[m.Pod]; pod != nil && s.Accepts(m.Pod) && membership.NamesGroup(pod, s.Group.Name) {
			pods = append(pods, m.Pod)
		}
	}
	slices.Sort(pods)
	for _, pod := range slices.Compact(pods) {
		switch report := s.Report(pod); {
		case report == nil:
			d.First = append(d.First, pod)
		case report.Revision < plan.Document.Revision:
			d.To = append(d.To, pod)
		}
	}
	return d
}

// command decides who is eligible, and who has to leave. Nobody leaves because of a list that isn't in the status yet.
func (s *step) command(plan *membership.Plan, result *groupstatus.Result) {
	for _, pod := range slices.Sorted(maps.Keys(result.Eligibility)) {
		s.Commands = append(s.Commands, Command{Pod: pod, Eligible: result.Eligibility[pod]})
	}
	if s.Publishes {
		return
	}
	for _, pod := range result.Leave {
		report := s.Agents[pod].Report
		inList := plan.List != nil && slices.ContainsFunc(plan.List.Members, func(m v1.Member) bool { return m.Pod == pod })
		if s.Pods[pod] == nil || plan.Document != nil && inList && report.UID != string(s.Group.UID) {
			// A member that is still in an earlier group of the name leaves that one when it gets the document of this one.
			continue
		}
		leave := &Leave{report.UID, report.Revision}
		if s.Published != nil {
			leave.Revision = max(leave.Revision, s.Published.Revision)
		}
		s.Commands = append(s.Commands, Command{Pod: pod, Leave: leave})
	}
}

// suspects returns the pods that other agents report as crashed. The reports of agents on a node that was lost would
// count for seconds otherwise: as long as they are the majority of those that the operator hears, the status would name
// a coordinator that was lost.
func (s *step) suspects() (pods []string) {
	for name, agent := range s.Agents {
		report := s.Report(name)
		if !agent.Connected || report == nil {
			continue
		}
		for i := range report.Processes {
			row := &report.Processes[i]
			if row.Name != name && row.Status == string(v1.ProcessCrashed) && s.Agents[row.Name].Report != nil {
				pods = append(pods, row.Name)
			}
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// isFromAgents reports whether nothing has changed from a list to the next one but what agents say about themselves:
// their addresses, identities and terms.
func isFromAgents(was, is *v1.MemberList) bool {
	switch {
	case was == nil:
		return false
	case is.Version == was.Version:
		return is.State == was.State && len(is.Departed) == len(was.Departed)
	}
	return slices.Equal(is.Members, was.Members) && is.LeaseMillis == was.LeaseMillis
}
