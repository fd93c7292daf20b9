package decide

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// model is a cluster with one group: what the API server has, the agents, and two replicas of the operator.
type model struct {
	t    *testing.T
	rng  *rand.Rand
	done map[string]int
	now  time.Time

	group   *v1.ElectionGroup
	version int // the resource version of the group
	pods    map[string]*corev1.Pod
	nodes   map[string]*corev1.Node
	// agents has those of pods that run, by UID, and allAgents all that have ever run, by the names of their pods.
	agents    map[types.UID]*agent
	allAgents map[string][]*agent
	created   int
	term      uint64
	replicas  [2]*replica

	// published has all lists by version, lost those that have lost their majority, and documents those by revision.
	published map[int64]*v1.MemberList
	lost      map[int64]bool
	documents map[int64]v1.PublishedDocument
}

// agent is a pod's agent with a state directory.
type agent struct {
	identity  string
	connected bool
	report    *control.Report
	// adoptions has the versions that it has adopted, and ended is when it ended, or left the group.
	adoptions []adoption
	ended     time.Time
}

type adoption struct {
	version uint32
	at      time.Time
}

// usedUntil returns until when the agent has used a version or an older one, and whether it still does.
func (a *agent) usedUntil(version int64) (until time.Time, still bool) {
	later := slices.IndexFunc(a.adoptions, func(s adoption) bool { return int64(s.version) > version })
	switch {
	case later == 0 || len(a.adoptions) == 0: // It began with a later version, or has none yet.
		return until, false
	case later > 0:
		return a.adoptions[later].at, false
	}
	return a.ended, a.ended.IsZero()
}

var podNames = []string{"p-0", "p-1", "p-2", "p-3", "p-4"}

// staleness is the delay after which a replica learns of a pod.
const staleness = 400 * time.Millisecond

// newModel returns a group in a mode, with a selector or declared members, that has no list yet.
func newModel(t *testing.T, seed uint64, done map[string]int) *model {
	m := &model{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), done: done, now: noon, group: newOperator().Group,
		pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, agents: map[types.UID]*agent{},
		allAgents: map[string][]*agent{}, published: map[int64]*v1.MemberList{}, lost: map[int64]bool{},
		documents: map[int64]v1.PublishedDocument{},
	}
	m.group.Status, m.group.CreationTimestamp = v1.ElectionGroupStatus{}, metav1.NewTime(noon)
	m.group.Spec.Safety.Mode = []v1.SafetyMode{v1.Majority, v1.Strict, v1.Available}[seed%3]
	if seed%2 == 0 {
		m.group.Spec.Members, m.group.Spec.PriorityFrom = nil, &v1.PriorityFrom{Ordinal: v1.HighestFirst}
		m.group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{v1.LabelAgent: v1.AgentEnabled}}
	}
	m.edit()
	for _, name := range podNames {
		m.nodes["node-"+name] = newNode("node-" + name)
		m.createPod(name)
	}
	for i := range m.replicas {
		m.replicas[i] = &replica{agents: map[string]facts.Agent{}, standby: i == 1, skew: time.Duration(i) * 30 * time.Minute}
		m.refresh(m.replicas[i])
	}
	return m
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func (m *model) oneIn(n int) bool { return m.rng.IntN(n) == 0 }

func (m *model) available() bool { return m.group.Spec.Safety.Mode == v1.Available }

func (m *model) strict() bool { return m.group.Spec.Safety.Mode == v1.Strict }

// edit changes the spec.
func (m *model) edit() {
	m.group = m.group.DeepCopy()
	m.version++
	m.group.Generation++
	m.group.Spec.Safety.LeaseMillis = []int32{100, 300, 3000}[m.rng.IntN(3)]
	m.group.Spec.Timing.DrainMillis = new(int32(m.rng.IntN(3)))
	if m.group.Spec.Selector != nil {
		return
	}
	m.group.Spec.Members = nil
	for i, name := range podNames {
		if m.oneIn(2) || i == 0 {
			m.group.Spec.Members = append(m.group.Spec.Members,
				v1.Member{Pod: name, Priority: int32(i + 1 + 10*m.rng.IntN(2))})
		}
	}
}

// createPod creates a pod, whose agent starts at once.
func (m *model) createPod(name string) {
	m.created++
	pod := newPod(name)
	pod.UID, pod.CreationTimestamp = types.UID(fmt.Sprint(name, "/", m.created)), metav1.NewTime(m.now)
	pod.Status.PodIP = fmt.Sprintf("10.0.%d.%d", m.created/250, m.created%250)
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: v1.AgentContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	if m.strict() && !m.oneIn(4) {
		pod.Finalizers = []string{v1.StopFinalizer("ledger")} // The identity service has added it.
	}
	m.pods[name] = pod
	m.startAgent(pod, memberlist.FormatIdentity(uint64(m.created)))
}

func (m *model) startAgent(pod *corev1.Pod, identity string) {
	a := &agent{identity: identity, connected: true}
	m.agents[pod.UID], m.allAgents[pod.Name] = a, append(m.allAgents[pod.Name], a)
}

// agentOf returns the agent of a running pod, or nil.
func (m *model) agentOf(name string) *agent {
	if pod := m.pods[name]; pod != nil {
		return m.agents[pod.UID]
	}
	return nil
}

func (m *model) endAgent(pod *corev1.Pod) {
	if a := m.agents[pod.UID]; a != nil {
		a.ended = m.now
		delete(m.agents, pod.UID)
	}
}

// stopPod ends a pod. In Strict mode, its finalizer retains the object, and the kubelet reports the end.
func (m *model) stopPod(name string) {
	pod := m.pods[name]
	if pod == nil {
		return
	}
	m.endAgent(pod)
	delete(m.pods, name)
	if len(pod.Finalizers) > 0 && m.oneIn(2) {
		m.deletePod(pod, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	}
}

// deletePod requests the deletion of a pod that is retained.
func (m *model) deletePod(pod *corev1.Pod, state corev1.ContainerState) {
	pod = pod.DeepCopy()
	pod.Status.Phase, pod.DeletionTimestamp = corev1.PodFailed, new(metav1.NewTime(m.now))
	pod.Status.InitContainerStatuses[0].State = state
	m.pods[pod.Name] = pod
}

// setFinalizers sets the finalizers of a pod. One that is being deleted disappears without them.
func (m *model) setFinalizers(pod *corev1.Pod, finalizers ...string) {
	now := m.pods[pod.Name]
	switch {
	case now == nil || now.UID != pod.UID:
	case len(finalizers) == 0 && now.DeletionTimestamp != nil:
		if m.agents[pod.UID] != nil {
			m.t.Errorf("%s was released, but its agent runs", pod.Name)
		}
		delete(m.pods, pod.Name)
	default:
		m.pods[pod.Name] = now.DeepCopy()
		m.pods[pod.Name].Finalizers = finalizers
	}
}

// randomEvent changes the cluster, or only the time.
func (m *model) randomEvent() {
	name := podNames[m.rng.IntN(len(podNames))]
	pod, a, r := m.pods[name], m.agentOf(name), m.replicas[m.rng.IntN(2)]
	m.now = m.now.Add(time.Duration(m.rng.IntN(120)) * time.Millisecond)
	switch m.rng.IntN(17) {
	case 0:
		if m.oneIn(3) {
			m.edit()
		}
	case 1:
		if pod == nil {
			m.createPod(name)
		}
	case 2:
		switch {
		case a == nil || !m.oneIn(2):
		case m.oneIn(3): // Its state directory is lost.
			m.endAgent(pod)
			m.created++
			m.startAgent(pod, memberlist.FormatIdentity(uint64(m.created)))
		case len(pod.Finalizers) > 0 && m.oneIn(3): // Its node is cut off and removed, and it runs on.
			m.deletePod(pod, pod.Status.InitContainerStatuses[0].State)
			a.connected = false
		default:
			m.stopPod(name)
		}
	case 3:
		if a != nil && pod.DeletionTimestamp == nil {
			a.connected = !a.connected
		}
	case 4:
		node := new(*m.nodes["node-"+name])
		node.Spec.Unschedulable = !node.Spec.Unschedulable
		m.nodes["node-"+name] = node
	case 5:
		if m.oneIn(8) {
			*r = replica{group: r.group, version: r.version, agents: map[string]facts.Agent{}, skew: r.skew, standby: r.standby}
		} else if r.lostAt.IsZero() {
			// Longer, or before a majority is connected again, the operator can't know that one is up.
			r.cutOffUntil = m.now.Add(time.Duration(m.rng.Int64N(int64(membership.MajorityGrace))))
		}
	case 6:
		m.replicas[1].standby = m.oneIn(2)
	case 7:
		m.now = m.now.Add(time.Duration(m.rng.IntN(20)) * time.Second)
	case 8, 9:
		m.electRandomly()
	case 10:
		if a != nil && a.report != nil {
			m.lie(a)
		}
	default:
		m.refresh(r)
	}
	for _, r := range m.replicas {
		m.observeMajority(r)
	}
}

// refresh brings the copies of a replica up to date.
func (m *model) refresh(r *replica) { r.group, r.version, r.pending = m.group, m.version, nil }

// electRandomly makes a majority of a list elect a coordinator, or some agents report that it is lost.
func (m *model) electRandomly() {
	list := m.group.Status.Protocol.MemberList
	if list == nil {
		return
	}
	var voters []*agent
	for _, member := range list.Members {
		if a := m.agentOf(member.Pod); a != nil && a.report != nil && int64(a.report.Version) == list.Version {
			voters = append(voters, a)
		}
	}
	if len(voters) <= len(list.Members)/2 {
		return
	}
	coordinator, lost := voters[m.rng.IntN(len(voters))].report.Pod, m.oneIn(3)
	if lost {
		coordinator, voters = "", voters[m.rng.IntN(len(voters)):]
	} else {
		m.term = max(m.term+1, uint64(m.group.Status.Term+1), uint64(list.Version)<<memberlist.CounterBits)
	}
	for _, a := range voters {
		a.report = new(*a.report)
		a.report.Coordinator, a.report.ChangedAt, a.report.Processes = coordinator, m.now, nil
		if !lost {
			a.report.Term, a.report.UsedTerm, a.report.ElectedAt = m.term, m.term, m.now
		}
	}
}

// lie makes an agent report what isn't true, until it takes part in the next election.
func (m *model) lie(a *agent) {
	m.done["lies"]++
	a.report = new(*a.report)
	switch other := podNames[m.rng.IntN(len(podNames))]; m.rng.IntN(4) {
	case 0:
		a.report.Coordinator = other
	case 1:
		a.report.Term = []uint64{0, a.report.Term / 2, m.term + 7}[m.rng.IntN(3)]
	case 2:
		a.report.Eligible, a.report.Excluded = m.oneIn(2), m.oneIn(2)
	case 3:
		status := []string{"Crashed", "Normal", "Coordinator", "odd"}[m.rng.IntN(4)]
		a.report.Processes = []control.Row{{Name: other, Status: status, Connected: m.oneIn(2)}}
	}
}

// agrees reports whether all members report the same one of them as coordinator, by the newest election: real agents
// give up an older tenure.
func (m *model) agrees() bool {
	coordinators, list := map[string]bool{}, m.group.Status.Protocol.MemberList
	for _, member := range list.Members {
		if a := m.agentOf(member.Pod); a != nil && a.report != nil && a.report.Term == m.term {
			coordinators[a.report.Coordinator] = true
		} else {
			coordinators[""] = true
		}
	}
	named := slices.Collect(maps.Keys(coordinators))
	return len(named) == 1 && slices.Contains(podsOf(list.Members), named[0])
}

// podsOf returns the names of members in alphabetical order.
func podsOf(members []v1.Member) (names []string) {
	for _, member := range members {
		names = append(names, member.Pod)
	}
	slices.Sort(names)
	return names
}
