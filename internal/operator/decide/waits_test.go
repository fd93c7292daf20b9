package decide

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// A published revision is higher than what agents have, so that they accept it, and not ahead of the clocks of others,
// which would refuse it. An agent that reports ever higher revisions doesn't matter once a majority uses the published
// document.
func TestReportedRevisions(t *testing.T) {
	next, last := noon.UnixMilli()+1, control.MaxRevision(noon.Add(-time.Hour))
	for name, c := range map[string]struct {
		published int64
		reported  [3]int64
		want      int64
	}{
		"the status lost the document":       {0, [3]int64{next, 5, 0}, next},
		"the highest that others accept":     {0, [3]int64{last, 5, 0}, last},
		"ahead of the clocks of others":      {0, [3]int64{last + 1, 5, 0}, 5},
		"the end of time":                    {0, [3]int64{1<<63 - 1, 5, 0}, 5},
		"a majority uses the document":       {7, [3]int64{next, 7, 6}, 7},
		"a majority has later documents":     {7, [3]int64{8, 9, 6}, 9},
		"a published revision of the future": {control.MaxRevision(noon) + 1, [3]int64{0, 0, 0}, 0},
	} {
		o := newOperator()
		o.Group.Status.Protocol.Document = nil
		if c.published != 0 {
			o.Group.Status.Protocol.Document = &v1.PublishedDocument{Revision: c.published}
		}
		for i, pod := range []string{"a", "b", "c"} {
			o.createPod(pod)
			o.Agents[pod].Report.Revision = c.reported[i]
		}
		_, got := o.newStep().published()
		expect.Equalf(t, got, c.want, "%s: revision", name)
	}
	o := newOperator()
	o.createPod("a")
	o.change(func(a *facts.Agent) { a.Required = 70 }, "a")
	_, got := o.newStep().published()
	expect.Equalf(t, got, 70, "revision that an agent requires")
}

// A backup has an older document than the operator has seen.
func TestRestoredDocumentIsOlder(t *testing.T) {
	o := newOperator()
	seen := &v1.PublishedDocument{Revision: 9, Digest: "seen"}
	o.Group.Status.Protocol.Document = seen
	o.step()
	for _, restored := range []*v1.PublishedDocument{nil, {Revision: 3, Digest: "restored"}, seen} {
		o.Group.Status.Protocol.Document = restored
		document, revision := o.newStep().published()
		expect.Equalf(t, *document, *seen, "document of the status %+v", restored)
		expect.Equalf(t, revision, seen.Revision, "revision")
	}
}

// moment is some time after the one before. These agents are connected, and something counts as lost.
type moment struct {
	name    string
	connect []string
	after   time.Duration
	lost    bool
}

func (o *operator) stepAt(at *moment) *step {
	o.Now = o.Now.Add(at.after)
	o.connect(at.connect...)
	return o.newStep()
}

// membership.Waits.MajorityLost: an operator that has just started isn't connected to any agent. That must not look as
// if the members had stopped. Each time that a majority is connected, the wait begins again.
func TestMajorityIsLostAfterGrace(t *testing.T) {
	o := newOperator()
	for _, at := range []moment{
		{"at the start", nil, 0, false},
		{"a minority is connected", []string{"a"}, membership.MajorityGrace - 1, false},
		{"after the grace", []string{"a"}, 1, true},
		{"a majority is connected", []string{"a", "b"}, 1, false},
		{"for a long time", []string{"b", "c"}, time.Hour, false},
		{"a short interruption", nil, time.Hour, false},
		{"another majority", []string{"a", "c"}, membership.MajorityGrace - 1, false},
		{"another interruption", []string{"c"}, 1, false},
		{"nearly the grace", []string{"c"}, membership.MajorityGrace - 1, false},
		{"the grace", []string{"b"}, 1, true},
	} {
		s := o.stepAt(&at)
		expect.Equalf(t, s.waits().MajorityLost, at.lost, "%s", at.name)
		o.memory, s.WakeAt = s.Memory, time.Time{}
		s.majorityLost()
		expect.Equalf(t, !s.WakeAt.IsZero(), len(at.connect) < 2 && !at.lost, "%s: wakes when the grace ends", at.name)
	}
	o.Agents["a"] = facts.Agent{Connected: true, NotInGroup: true}
	expect.Equalf(t, o.newStep().majorityLost(), true, "lost the majority of agents that accept the group")
}

// membership.Waits.WitnessLost: the wait begins when the witness isn't connected, or when the group lacks one.
func TestWitnessIsLostAfterGrace(t *testing.T) {
	const witness = v1.WitnessPrefix + "0"
	o := newOperator()
	o.Group.Spec.Witness = v1.WitnessManaged
	o.Group.Status.Protocol.MemberList.Members = []v1.Member{{Pod: "a"}, {Pod: "b"}, {Pod: witness}}
	for _, at := range []moment{
		{"at the start", nil, 0, false},
		{"connected", []string{witness}, membership.WitnessGrace, false},
		{"not connected", []string{"a", "b"}, time.Hour, false},
		{"nearly the grace", []string{"a", "b"}, membership.WitnessGrace - 1, false},
		{"the grace", []string{"a", "b"}, 1, true},
		{"connected again", []string{witness}, 1, false},
	} {
		s := o.stepAt(&at)
		expect.Equalf(t, s.waits().WitnessLost, at.lost, "%s", at.name)
		o.memory, s.WakeAt = s.Memory, time.Time{}
		s.witnessLost()
		expect.Equalf(t, !s.WakeAt.IsZero(), !s.Accepts(witness), "%s: wakes", at.name)
	}
	for n, wakes := range []bool{true, true, false} {
		o.Group.Status.Protocol.MemberList.Members = []v1.Member{{Pod: "a"}, {Pod: "b"}, {Pod: "c"}}[:n+1]
		s := o.newStep()
		s.witnessLost()
		expect.Equalf(t, !s.WakeAt.IsZero(), wakes, "%d members look for a witness again", n+1)
	}
}

// A standby makes few steps. So it doesn't count the time between two of them, in which a majority may have been
// connected.
func TestStandbyDoesNotCountTimeWithoutMajority(t *testing.T) {
	o := newElectedOperator()
	o.LeaderGrace = time.Second
	o.elect("a", firstTerm+1, "a")
	o.Agents["b"], o.Agents["c"] = facts.Agent{Problem: "refused"}, facts.Agent{Problem: "refused"}
	for range 3 {
		o.apply()
		o.Now = o.Now.Add(time.Hour)
	}
	expect.Equalf(t, o.Group.Status.Coordinator.Pod, "a", "coordinator that the standby has written")
	o.LeaderGrace = 0
	expect.Equalf(t, o.newStep().waits().MajorityLost, false, "lost the majority in the first step as the leader")
}

// The first list of a selector waits for 3 s after the first agent is connected, for those of its other pods.
func TestFirstListWaitsForAgents(t *testing.T) {
	o := newOperator()
	o.Group.Status.Protocol = v1.ProtocolState{}
	o.Group.Spec.Members = nil
	o.Group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{v1.LabelAgent: v1.AgentEnabled}}
	o.Group.Spec.PriorityFrom = &v1.PriorityFrom{Annotation: v1.AnnotationPriority}
	for _, pod := range []string{"a", "b"} {
		o.createPod(pod)
		o.Agents[pod] = facts.Agent{Problem: "refused"}
	}
	o.apply()
	o.Now = o.Now.Add(time.Hour)
	o.Agents["a"] = facts.Agent{Connected: true}
	for _, at := range []struct {
		after   time.Duration
		members int
	}{{0, 0}, {firstListTimeout - 1, 0}, {1, 1}} {
		o.Now = o.Now.Add(at.after)
		actions, members := o.apply(), 0
		if list := o.Group.Status.Protocol.MemberList; list != nil {
			members = len(list.Members)
		}
		expect.Equalf(t, members, at.members, "members %s later", at.after)
		if at.members == 0 {
			expect.Equalf(t, actions.WakeAt.Sub(noon.Add(time.Hour)), firstListTimeout, "wakes after")
		}
	}
}

// membership.Waits.Missing: the wait restarts with each version. A pod that has been missing for a long time may be
// created just before the version is published, begin with the previous one, and appear in the cache only later.
func TestMissingPodWaitRestartsWithEachVersion(t *testing.T) {
	o := newOperator()
	isMissing := func() bool {
		s := o.newStep()
		w := s.waits()
		o.memory = s.Memory
		return w.Missing["c"]
	}
	expect.Equalf(t, isMissing(), false, "c is missing before the wait is over")
	o.Now = o.Now.Add(time.Hour)
	expect.Equalf(t, isMissing(), true, "c is missing after an hour")
	members := o.Group.Spec.Members
	o.Group.Status.Protocol.MemberList = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: members[:2], Previous: &v1.PreviousList{Members: members},
	}
	expect.Equalf(t, isMissing(), false, "c is missing before the wait is over")
	o.Now = o.Now.Add(time.Hour)
	expect.Equalf(t, isMissing(), true, "c is missing after an hour")
	o.createPod("c")
	expect.Equalf(t, isMissing(), false, "c is missing when it has a pod")
}

// membership.Waits.Retired: only the identity counts that the previous list names, and the pod's next agent doesn't
// report it any more.
func TestRetiredMemberIsNotWaitedFor(t *testing.T) {
	o := newOperator()
	for _, pod := range []string{"a", "b"} {
		o.createPod(pod)
	}
	o.Agents["a"].Report.Retired, o.Agents["b"].Report.Retired = "1", "2"
	o.step()
	o.Agents["a"].Report.Retired, o.Agents["b"].Report.Retired = "", ""
	list := o.Group.Status.Protocol.MemberList
	list.Version, list.State = 2, v1.ListAdopting
	list.Previous = &v1.PreviousList{
		Version: 1, Members: list.Members, Identities: map[string]v1.Identity{"a": "1", "b": "3"},
	}
	s := o.newStep()
	w := s.waits()
	expect.Equalf(t, w.Retired["a"], true, "a has retired")
	expect.Equalf(t, w.Retired["b"], false, "b has retired with the identity of the list")
	expect.Equalf(t, w.Retired["c"], false, "c has retired")
}

// While a list is adopted, a pod that the cache lacks is read before its absence counts, once. One that exists is read
// again after a second, and not later than that.
func TestMissingPodIsReadOnce(t *testing.T) {
	o := newOperator()
	o.createPod("a")
	list := o.Group.Status.Protocol.MemberList
	list.Version, list.State, list.Previous = 2, v1.ListAdopting, &v1.PreviousList{Version: 1, Members: list.Members}
	read := func() []string {
		actions, _ := Step(&o.Facts, o.memory)
		if actions.Read == nil {
			return nil
		}
		return actions.Read.Pods
	}
	expect.EqualSlicesf(t, read(), []string{"b", "c"}, "pods to read")
	o.step()
	expect.EqualSlicesf(t, read(), nil, "pods to read again")
	o.createPod("b")
	o.step()
	delete(o.Pods, "b")
	delete(o.Agents, "b")
	expect.EqualSlicesf(t, read(), []string{"b"}, "pods to read after b is gone")
	o.createPod("b")
	o.Fresh["b"] = true
	actions, _ := Step(&o.Facts, o.memory)
	expect.AtMostf(t, actions.WakeAt.Sub(o.Now), uncachedPodRecheck, "time until b is read again")
}

// What may come from an old cache is read from the API server before a step.
func TestStaleGroupIsRead(t *testing.T) {
	withService := func(o *operator) {
		o.Group.Spec.Service = &v1.CoordinatorService{Name: "front"}
		o.Service = &corev1.Service{}
		o.Service.Labels = map[string]string{v1.LabelGroup: "ledger"}
	}
	for name, c := range map[string]struct {
		change func(*operator)
		want   bool
	}{
		"nothing":                {func(*operator) {}, false},
		"the Service exists":     {withService, false},
		"a later generation":     {func(o *operator) { o.Group.Status.ObservedGeneration = 2 }, true},
		"the Service is missing": {func(o *operator) { withService(o); o.Service = nil }, true},
		"without the permission": {func(o *operator) {
			withService(o)
			o.Service, o.ServicesForbidden = nil, true
		}, false},
		"the Service of another group": {func(o *operator) { withService(o); ownedByGroup(o.Service, "other") }, true},
		"the Service of this group":    {func(o *operator) { withService(o); ownedByGroup(o.Service, uid) }, false},
	} {
		o := newElectedOperator()
		c.change(o)
		actions, _ := Step(&o.Facts, o.memory)
		expect.Equalf(t, actions.Read != nil && actions.Read.Group, c.want, "%s: the group is read", name)
		if actions.Read != nil {
			expect.Equalf(t, actions.Traffic == nil && actions.Status == nil, true, "%s: nothing else is done", name)
		}
	}
}
