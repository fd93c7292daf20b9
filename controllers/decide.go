package controllers

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// membershipFacts returns the facts from which membership.MakePlan decides.
func (s *snapshot) membershipFacts() membership.Facts {
	f := membership.Facts{
		Group: s.group, Nodes: s.nodes, Connected: map[types.UID]bool{}, Preferred: s.preferred,
		Identities: map[string]string{}, Versions: map[string]int64{}, Term: s.term(),
		Adopted: s.adopted(), Missing: s.missing(),
		ServicesForbidden: s.servicesForbidden, Service: s.service, EndpointSlice: s.endpointSlice, Now: s.now,
	}
	for name, pod := range s.pods {
		f.Pods = append(f.Pods, pod)
		connection := s.connections[name]
		f.Connected[pod.UID] = connection.Accepts(s.key.Name)
		f.Identities[name] = connection.Identity
		if !connection.Connected && connection.Problem == "" && isFollowed(pod) {
			f.ContactPending = true
		}
	}
	for name, report := range s.reports {
		if report.Report.UID == string(s.group.UID) {
			// Also if the agent isn't connected now: no agent goes back to an older list.
			f.Versions[name] = int64(report.Report.Version)
		}
		if s.connections[name].Connected && report.Report.UID != string(s.group.UID) {
			f.InEarlierGroup = append(f.InEarlierGroup, name)
		}
	}
	f.FirstListComplete, f.MajorityLost = s.firstListTimedOut(), s.majorityLost()
	f.Published, f.Revision = s.published()
	return f
}

// statusFacts returns the facts from which groupstatus.Evaluate decides.
func (s *snapshot) statusFacts(p *membership.Plan) groupstatus.Facts {
	f := groupstatus.Facts{
		Group: s.group, List: s.group.Status.Protocol.MemberList, Problem: p.Problem, StatusBehind: p.StatusBehind,
		ServiceProblem: cmp.Or(p.ServiceProblem, s.state.routingError.servicesForbidden()),
		PublishError:   s.state.publishError.text, RoutingError: s.state.routingError.text,
		Pods: s.pods, Nodes: s.nodes, Deleted: s.deleted, Unlisted: s.unlisted,
		Agents: map[string]groupstatus.AgentState{}, Now: s.now,
	}
	for name := range s.pods {
		connection := s.connections[name]
		f.Agents[name] = groupstatus.AgentState{
			Connected: connection.Connected, NotInGroup: connection.Connected && !connection.Accepts(s.key.Name),
			Problem: connection.Problem, Version: connection.Version, Report: s.reports[name].Report,
		}
	}
	return f
}

// adopted returns the members of the previous list that have reported the list in force for long enough.
func (s *snapshot) adopted() map[string]bool {
	list := s.group.Status.Protocol.MemberList
	if list == nil || list.Previous == nil || list.State != v1.ListAdopting {
		return nil
	}
	wait := membership.AdoptionWait(s.group)
	adopted := map[string]bool{}
	for _, m := range list.Previous.Members {
		report, ok := s.reports[m.Pod]
		if !ok || report.Report.UID != string(s.group.UID) || int64(report.Report.Version) != list.Version {
			continue
		}
		if s.deadline.reached(report.AdoptedAt.Add(wait), s.now) {
			adopted[m.Pod] = true
		}
	}
	return adopted
}

// missing returns the members whose pods have been gone for long enough. The wait begins when the list in force has
// been published: a pod that is created before may begin with the previous list, and grant by it.
func (s *snapshot) missing() map[string]bool {
	list := s.group.Status.Protocol.MemberList
	if published, _ := s.published(); list == nil || published == nil {
		s.state.missingSince = nil
		return nil
	}
	if s.state.missingVersion != list.Version {
		s.state.missingVersion, s.state.missingSince = list.Version, nil
	}
	members := list.Members
	if list.Previous != nil {
		members = append(slices.Clip(members), list.Previous.Members...)
	}
	grace := membership.MissingPodGrace(s.group)
	missing, since := map[string]bool{}, map[string]time.Time{}
	for _, m := range members {
		if !s.isMissing(m.Pod) {
			continue
		}
		since[m.Pod] = s.now
		if before, ok := s.state.missingSince[m.Pod]; ok {
			since[m.Pod] = before
		}
		if s.deadline.reached(since[m.Pod].Add(grace), s.now) {
			missing[m.Pod] = true
		}
	}
	s.state.missingSince = since
	return missing
}

// term returns the highest term that an agent of the group reports, of those that can be. A single agent is believed if
// the term is one of a known list. Agents may have granted a claim under a list that its sender invented. If the others
// are no majority of the list, nobody can be elected under it, and the next list must be above that term.
func (s *snapshot) term() (highest int64) {
	list := s.group.Status.Protocol.MemberList
	if list == nil {
		return 0
	}
	var terms []int64
	for pod, report := range s.reports {
		term := int64(min(report.Report.UsedTerm, control.MaxTerm))
		isMember := slices.ContainsFunc(list.Members, func(m v1.Member) bool { return m.Pod == pod })
		if report.Report.UID != string(s.group.UID) || !isMember {
			continue
		}
		terms = append(terms, term)
		if int64(control.VersionOf(term)) <= list.Version {
			highest = max(highest, term)
		}
	}
	slices.Sort(terms)
	if majority := len(list.Members)/2 + 1; len(terms) >= majority {
		highest = max(highest, terms[majority-1])
	}
	return highest
}

func (s *snapshot) isMissing(name string) bool {
	pod := s.pods[name]
	if pod == nil || s.explaining[name] {
		return membership.Gone(s.group, nil, nil)
	}
	return membership.Gone(s.group, pod, s.nodes[pod.Spec.NodeName])
}

// majorityLost reports whether no majority of the members has been connected for
// membership.MajorityGrace. After a start of the operator, no agent is connected yet. So the wait
// begins again then, and a list that waits for its members isn't published because of that.
func (s *snapshot) majorityLost() bool {
	list := s.group.Status.Protocol.MemberList
	if list == nil {
		return false
	}
	connected := 0
	for _, m := range list.Members {
		if s.connections[m.Pod].Accepts(s.key.Name) {
			connected++
		}
	}
	if connected > len(list.Members)/2 {
		s.state.majorityLostAt = time.Time{}
		return false
	}
	if s.state.majorityLostAt.IsZero() {
		s.state.majorityLostAt = s.now
	}
	return s.deadline.reached(s.state.majorityLostAt.Add(membership.MajorityGrace), s.now)
}

// firstListTimedOut reports whether the first list of a selector waits for no more
// agents: firstListTimeout has passed since the first one connected.
func (s *snapshot) firstListTimedOut() bool {
	if s.state.firstConnected.IsZero() {
		for _, connection := range s.connections {
			if connection.Accepts(s.key.Name) {
				s.state.firstConnected = s.now
			}
		}
	}
	if s.state.firstConnected.IsZero() || s.group.Status.Protocol.MemberList != nil {
		return false
	}
	return s.deadline.reached(s.state.firstConnected.Add(firstListTimeout), s.now)
}

// published returns what identifies the published document, nil if there is none, and the highest
// known revision. That includes the revisions of an earlier group of the same name, and those that
// agents have although the status lost them.
func (s *snapshot) published() (document *v1.PublishedDocument, revision int64) {
	limit := control.MaxRevision(s.now)
	document = s.group.Status.Protocol.Document
	if own := s.state.published; document == nil || own != nil && own.Revision > document.Revision {
		// A backup was restored.
		document = own
	}
	if document != nil && document.Revision > limit {
		document = nil
	}
	revision = s.state.revision
	if document != nil {
		revision = max(revision, document.Revision)
	}
	if document == nil || !s.majorityUses(document) {
		for _, report := range s.reports {
			revision = max(revision, adoptable(report.Report.Revision, s.now))
		}
	}
	for _, required := range s.required {
		revision = max(revision, adoptable(required, s.now))
	}
	s.state.revision = revision
	return document, revision
}

// adoptable returns a revision that an agent reports, or 0 if the next one might be ahead of the
// clocks of other agents: they would refuse it.
func adoptable(revision int64, now time.Time) int64 {
	if revision > control.MaxRevision(now.Add(-time.Hour)) {
		return 0
	}
	return revision
}

// majorityUses reports whether a majority of the members uses a document or an earlier one. Then others that report
// later ones are wrong: an agent that always reports the next revision must not make the operator publish without end.
func (s *snapshot) majorityUses(document *v1.PublishedDocument) bool {
	list := s.group.Status.Protocol.MemberList
	if list == nil {
		return false
	}
	count := 0
	for _, m := range list.Members {
		if report, ok := s.reports[m.Pod]; ok && report.Report.UID == string(s.group.UID) &&
			report.Report.Revision <= document.Revision {
			count++
		}
	}
	return count > len(list.Members)/2
}
