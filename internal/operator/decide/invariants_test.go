package decide

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// violation returns the violated rule of the schema, or "": see api/v1/memberlist.go.
func violation(was, is *v1.MemberList) string {
	switch {
	case is.Previous == nil && (is.Departed != nil || is.State != v1.ListSettled):
		return "a first list must not have a previous list"
	case is.Previous != nil && is.Previous.Version >= is.Version:
		return "the version isn't above the previous one"
	case was == nil:
		return ""
	case is.Version == was.Version:
		if was.State == v1.ListSettled && is.State != v1.ListSettled || !slices.Equal(is.Members, was.Members) ||
			!equality.Semantic.DeepEqual(is.Previous, was.Previous) {
			return "the list has changed under the same version"
		}
		if was.LeaseMillis != 0 && is.LeaseMillis != was.LeaseMillis {
			return "the lease has changed under the same version"
		}
		for pod, identity := range was.Identities {
			if is.Identities[pod] != identity {
				return "an identity has changed under the same version"
			}
		}
	case is.Version < was.Version || was.State != v1.ListSettled || is.State != v1.ListAdopting ||
		is.Previous.Version != was.Version || !slices.Equal(is.Previous.Members, was.Members) ||
		!maps.Equal(is.Previous.Identities, was.Identities):
		return "the list is not a successor"
	}
	return ""
}

// checkStatus checks a status that is written: the rules of the schema, and what no schema can check.
func (m *model) checkStatus(r *replica, was, is *v1.ElectionGroupStatus) {
	if is.Term < was.Term {
		m.t.Errorf("the term went back from %d to %d", was.Term, is.Term)
	}
	before, list := was.Protocol.MemberList, is.Protocol.MemberList
	if list == nil {
		return
	}
	m.checkTable(is)
	if why := violation(before, list); why != "" {
		m.t.Errorf("got list %+v after %+v: %s", list, before, why)
	}
	if !equality.Semantic.DeepEqual(before, list) {
		m.done["lists"]++
		m.checkMajority(r, before, list)
		m.checkList(list.DeepCopy())
	}
	document := *is.Protocol.Document
	if d := was.Protocol.Document; d != nil && document.Revision < d.Revision {
		m.t.Errorf("the revision went back from %d to %d", d.Revision, document.Revision)
	}
	if known, ok := m.documents[document.Revision]; ok && known != document {
		m.t.Errorf("revision %d was published with two digests", document.Revision)
	}
	m.documents[document.Revision] = document
	if r.pending.Document != nil && r.pending.Document.Revision != document.Revision {
		m.t.Errorf("agents get document %d, but the status has %d", r.pending.Document.Revision, document.Revision)
	}
}

// checkTable checks that the parts of a status don't contradict each other.
func (m *model) checkTable(is *v1.ElectionGroupStatus) {
	c, list := is.Coordinator, is.Protocol.MemberList
	if c != nil && (c.Term > is.Term || c.Term < is.Term && !m.available() || c.Priority < 1 || c.ElectedAt.IsZero()) {
		m.t.Errorf("got coordinator %+v in a status of term %d", c, is.Term)
	}
	expect.Lenf(m.t, is.Processes, len(list.Members), "rows")
	last := int32(v1.MaxPriority)
	for i := range is.Processes {
		row := &is.Processes[i]
		if leads := c != nil && c.Pod == row.Pod; leads != (row.Status == v1.ProcessCoordinator) || row.Priority > last ||
			len(row.Message) > 256 || row.Since == nil {
			m.t.Errorf("got coordinator %+v, and the row %+v", c, row)
		}
		last = row.Priority
	}
	isTrue := func(of v1.ConditionType) bool { return meta.IsStatusConditionTrue(is.Conditions, string(of)) }
	// A group is ready although a minority has not applied the newest settings.
	progress := meta.FindStatusCondition(is.Conditions, string(v1.ConditionProgressing))
	adopts := isTrue(v1.ConditionProgressing) && progress.Reason != string(v1.ReasonSettingsDiffer)
	if isTrue(v1.ConditionReady) && (!isTrue(v1.ConditionAvailable) || adopts) ||
		isTrue(v1.ConditionAvailable) && c == nil ||
		int(*is.ReadyMembers) < len(is.Processes) && !isTrue(v1.ConditionDegraded) {
		m.t.Errorf("got coordinator %+v, %d members that are ready, and conditions %+v", c, *is.ReadyMembers, is.Conditions)
	}
}

// checkCommands checks that the operator doesn't exclude all members that could lead, and that no member has to leave.
// The only member is excluded if its pod is being deleted.
func (m *model) checkCommands(f *facts.Facts, a *Actions) {
	excluded := map[string]bool{}
	for pod, agent := range f.Agents {
		excluded[pod] = agent.Report == nil || agent.Report.Excluded
	}
	for _, c := range a.Commands {
		if list := a.Traffic.Plan.List; c.Leave != nil && slices.Contains(podsOf(list.Members), c.Pod) {
			m.t.Errorf("%s has to leave, but is in list %+v", c.Pod, list)
		}
		excluded[c.Pod] = c.Leave == nil && !c.Eligible
	}
	for _, c := range a.Commands {
		if pod := f.Pods[c.Pod]; len(a.Traffic.Plan.List.Members) == 1 && (pod == nil || pod.DeletionTimestamp != nil) {
			continue
		}
		if c.Leave == nil && !c.Eligible && !slices.Contains(slices.Collect(maps.Values(excluded)), false) {
			m.t.Errorf("%s is excluded, and no other member could lead: %v", c.Pod, excluded)
		}
	}
}

// checkList checks the invariants when a list is written to the status. A list loses its majority when so many members
// have adopted a later list, or have ended, that the others are no majority. All lists before the previous one must
// have lost their majority, and when a list settles, so must the previous one.
func (m *model) checkList(list *v1.MemberList) {
	if known := m.published[list.Version]; known != nil && !slices.Equal(known.Members, list.Members) {
		m.t.Errorf("version %d: got members %v and %v", list.Version, known.Members, list.Members)
	}
	m.published[list.Version] = list
	if m.available() {
		return // Its members don't vote.
	}
	for version, old := range m.published {
		if previous := list.Previous; previous == nil || version > previous.Version ||
			version == previous.Version && list.State != v1.ListSettled {
			continue
		}
		if !m.lostMajority(version, old) {
			m.t.Errorf("got list %+v, but a majority can still elect with version %d: %v", list, version, old.Members)
		}
	}
}

// lostMajority reports whether a list has lost its majority. Only a process with the identity that the list names for a
// member votes as that.
func (m *model) lostMajority(version int64, list *v1.MemberList) bool {
	if m.lost[version] {
		return true
	}
	// A process that holds the office by this list requests grants for its lease, and no member grants for longer.
	lease := time.Duration(list.LeaseMillis) * time.Millisecond
	count := 0
	for _, member := range list.Members {
		over := true
		for _, a := range m.allAgents[member.Pod] {
			until, still := a.usedUntil(version)
			votes := a.identity == string(list.Identities[member.Pod])
			over = over && (!votes || !still && !m.now.Before(until.Add(lease)))
		}
		if over {
			count++
		}
	}
	m.lost[version] = count > len(list.Members)/2
	return m.lost[version]
}

// upAndConnected returns the pods that are up, and connected to an operator that isn't cut off.
func (m *model) upAndConnected() map[string]bool {
	up := map[string]bool{}
	for _, name := range podNames {
		a := m.agentOf(name)
		up[name] = a != nil && a.connected
	}
	return up
}

// observeMajority is the part of a step about the majority of the members, which each change of a connection triggers.
func (m *model) observeMajority(r *replica) {
	list := r.group.Status.Protocol.MemberList
	if list == nil {
		return
	}
	up := map[string]bool{}
	for _, name := range podNames {
		up[name] = m.isConnected(r, name)
	}
	if hasMajority(list.Members, up) {
		r.lostAt, r.memory.MajorityLostAt = time.Time{}, time.Time{}
	} else if r.lostAt.IsZero() {
		r.lostAt = m.now
	}
}

func hasMajority(members []v1.Member, up map[string]bool) bool {
	count := 0
	for _, member := range members {
		if up[member.Pod] {
			count++
		}
	}
	return count > len(members)/2
}

// checkMajority checks that an operator didn't publish a list that costs the group its coordinator: when it decided,
// the list before had a majority, and this one had none.
func (m *model) checkMajority(r *replica, before, list *v1.MemberList) {
	lost := !r.lostAt.IsZero() && m.now.Sub(r.lostAt) >= membership.MajorityGrace
	if m.available() || lost || before == nil || list.Version == before.Version ||
		slices.Equal(podsOf(before.Members), podsOf(list.Members)) {
		return
	}
	if hasMajority(before.Members, r.up) && !hasMajority(list.Members, r.up) {
		m.t.Errorf("got list %+v, which has no majority, while the one before has one: %v", list, before.Members)
	}
}
