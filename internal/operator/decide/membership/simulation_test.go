package membership

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

var (
	runs = flag.Int("runs", 100, "number of simulations")
	seed = flag.Uint64("seed", 1, "seed of the first simulation")
)

// TestSimulation simulates groups with edits, pods that are created and end, agents that
// adopt lists late or lose their state directories, and two operators that use stale copies, have
// different clocks, are killed between two writes, and lose their connections to all agents. Some
// declared members have no pods before the end. In the end, the simulation converges, and the list
// must be the wanted one.
//
//	operator:  read a copy ... plan ... status | push
//	                                           ^ killed here
func TestSimulation(t *testing.T) {
	waited := 0
	for i := range uint64(*runs) {
		s := newSimulation(t, *seed+i)
		for range 600 {
			s.randomEvent()
			s.advance(time.Duration(s.rng.IntN(120)) * time.Millisecond)
			for _, o := range s.operators {
				s.observeMajority(o)
			}
			if t.Failed() {
				t.Fatalf("replay it with -run TestSimulation -runs 1 -seed %d", *seed+i)
			}
		}
		s.converge()
		if t.Failed() {
			t.Fatalf("replay it with -run TestSimulation -runs 1 -seed %d", *seed+i)
		}
		waited += s.waited
	}
	if t.Logf("%d plans waited for a majority", waited); waited == 0 && *runs >= 100 {
		t.Error("no list waited for a majority, so the simulation doesn't test that")
	}
}

// agent is a pod's agent with a state directory. It stores what it has adopted.
type agent struct {
	identity  string
	version   uint32
	revision  int64
	connected bool
	// adoptions has the versions that it has adopted.
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

// simulation simulates the API server, pods with agents, and two operators.
type simulation struct {
	t   *testing.T
	rng *rand.Rand
	now time.Time

	group    *v1.ElectionGroup // as the API server has it
	writes   int
	document *Plan            // has the published document
	digests  map[int64]string // of all documents by revision
	pods     map[string]*corev1.Pod
	agents   map[types.UID]*agent
	// allAgents has all agents that have existed, by the names of their pods.
	allAgents map[string][]*agent
	created   int
	started   uint64

	// published has all lists that have been in the status by version, and lost those that have lost their majority.
	published map[int64]*v1.MemberList
	lost      map[int64]bool

	// waited counts the plans of lists that wait for a majority.
	waited int

	operators [2]*operator
}

// staleness is the delay after which an operator learns of a pod.
const staleness = 400 * time.Millisecond

// allNames are those of all pods. Pods that aren't in earlyNames don't exist before the end.
var (
	allNames   = []string{"a-0", "a-1", "a-2", "a-3", "a-4", "a-5", "a-6", "b-0", "b-1", "b-2"}
	earlyNames = allNames[:7]
)

// operator is the memory of an operator, and its pending writes.
type operator struct {
	group    *v1.ElectionGroup // a copy
	document *Plan             // a copy
	since    map[string]time.Time
	// identities are those that agents have sent, by the UIDs of their pods.
	identities map[types.UID]string
	// skew is by how much its clock is ahead.
	skew time.Duration
	plan *Plan
	step int
	// cutOffUntil is until when it isn't connected to any agent, and majorityLostAt since when
	// it has been connected to no majority.
	cutOffUntil, majorityLostAt time.Time
	// up has the pods that were up and connected when it made its plan.
	up map[string]bool
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), now: noon, pods: map[string]*corev1.Pod{}, agents: map[types.UID]*agent{},
		allAgents: map[string][]*agent{}, published: map[int64]*v1.MemberList{}, lost: map[int64]bool{},
		digests: map[int64]string{},
	}
	f := newSelectorFacts(v1.PriorityFrom{Ordinal: v1.HighestFirst})
	if seed%2 == 0 {
		f = newDeclaredFacts("")
	}
	s.group = f.Group
	if seed%3 == 0 {
		s.group.Spec.Safety.Mode = v1.Strict
	}
	s.editMembers()
	for i := range s.operators {
		s.operators[i] = newOperator(s.group.DeepCopy(), nil)
		s.operators[i].skew = []time.Duration{0, 24 * time.Hour, 48 * time.Hour}[s.rng.IntN(3)]
	}
	return s
}

func newOperator(group *v1.ElectionGroup, document *Plan) *operator {
	return &operator{
		since: map[string]time.Time{}, identities: map[types.UID]string{}, group: group, document: document,
	}
}

// agent returns the agent of a running pod, or nil.
func (s *simulation) agent(name string) *agent {
	if pod := s.pods[name]; pod != nil {
		return s.agents[pod.UID]
	}
	return nil
}

func (s *simulation) randomName() string { return earlyNames[s.rng.IntN(len(earlyNames))] }

// editMembers changes the declared members, and the lease.
func (s *simulation) editMembers() {
	s.group.Generation++
	s.bumpResourceVersion()
	s.group.Spec.Safety.LeaseMillis = []int32{100, 300, 500, 3000}[s.rng.IntN(4)]
	if s.group.Spec.Selector != nil {
		return
	}
	var members []v1.Member
	declared := earlyNames
	if s.rng.IntN(3) == 0 {
		declared = allNames
	}
	for i, name := range declared {
		if s.rng.IntN(2) == 0 {
			members = append(members, v1.Member{Pod: name, Priority: int32(i + 1 + 10*s.rng.IntN(3))})
		}
	}
	if len(members) > 0 {
		s.group.Spec.Members = members
	} else {
		s.group.Spec.Members = parseMembers("a-0 1")
	}
}

// bumpResourceVersion gives the group its next resource version.
func (s *simulation) bumpResourceVersion() {
	s.writes++
	s.group.ResourceVersion = strconv.Itoa(s.writes)
}

func (s *simulation) randomEvent() {
	name := s.randomName()
	switch pod := s.pods[name]; s.rng.IntN(12) {
	case 0:
		if s.rng.IntN(4) == 0 {
			s.editMembers()
		}
	case 1:
		if pod == nil {
			s.createPod(name)
		}
	case 2:
		switch a := s.agent(name); {
		case pod != nil && s.rng.IntN(3) == 0:
			s.disrupt(name)
		case a != nil && s.rng.IntN(3) == 0: // Its state directory is lost.
			s.endAgent(pod)
			s.startAgent(pod)
		}
	case 3:
		if a := s.agent(name); a != nil {
			a.connected = !a.connected
		}
	case 4, 5:
		if pod != nil {
			s.give(pod) // Another operator has sent it.
		}
	case 6:
		o := s.operators[s.rng.IntN(2)]
		if s.rng.IntN(6) == 0 {
			skew := o.skew
			*o = *newOperator(o.group, o.document) // It was killed and restarted.
			o.skew = skew
			s.cutOff(o)
		} else if s.rng.IntN(6) == 0 {
			s.cutOff(o)
		}
	case 7:
		o := s.operators[s.rng.IntN(2)]
		s.refresh(o)
	default:
		s.stepOperator(s.operators[s.rng.IntN(2)])
	}
}

func (s *simulation) createPod(name string) {
	if s.strict() && s.pods[name] != nil {
		s.stopPod(name)
	}
	s.created++
	f := Facts{Connected: map[types.UID]bool{}, Nodes: map[string]*corev1.Node{}, Identities: map[string]string{}}
	pod := f.addPod(name)
	pod.UID = types.UID(fmt.Sprint(name, "/", s.created))
	pod.CreationTimestamp = metav1.NewTime(s.now)
	if s.strict() {
		pod.Finalizers = []string{v1.StopFinalizer(s.group.Name)} // The identity service has added it.
	}
	s.pods[name] = pod
	s.startAgent(pod)
}

// startAgent starts the agent of a pod with a new state directory. It gets the document when it connects.
func (s *simulation) startAgent(pod *corev1.Pod) {
	s.started++
	a := &agent{identity: control.FormatIdentity(s.started), connected: true}
	s.agents[pod.UID], s.allAgents[pod.Name] = a, append(s.allAgents[pod.Name], a)
	s.give(pod)
}

func (s *simulation) endAgent(pod *corev1.Pod) {
	if a := s.agents[pod.UID]; a != nil {
		a.ended = s.now
		delete(s.agents, pod.UID)
	}
}

func (s *simulation) endPod(name string) {
	pod := s.pods[name]
	s.endAgent(pod)
	delete(s.pods, name)
	if !Finished(pod) && s.rng.IntN(3) == 0 {
		failed := pod.DeepCopy() // The pod object remains for some time.
		failed.Status.Phase = corev1.PodFailed
		s.pods[name] = failed
	}
}

// give gives a pod's agent the published document.
func (s *simulation) give(pod *corev1.Pod) {
	a := s.agents[pod.UID]
	if a == nil || s.document == nil || s.document.Document.Revision <= a.revision {
		return
	}
	d := s.document.Document
	a.revision = d.Revision
	expect.AtLeastf(s.t, d.Group.Version, a.version, "version of %s", pod.Name)
	if d.Group.Version > a.version {
		a.version = d.Group.Version
		a.adoptions = append(a.adoptions, adoption{a.version, s.now})
	}
}

func (s *simulation) refresh(o *operator) {
	o.group, o.document, o.plan = s.group.DeepCopy(), s.document, nil
}

// stepOperator makes an operator do its next write, or make its next plan.
func (s *simulation) stepOperator(o *operator) {
	if o.plan == nil {
		p := MakePlan(s.facts(o))
		o.plan, o.step, o.up = &p, 0, s.upAndConnected()
		if p.Problem != nil && p.Problem.Reason == v1.ReasonWaitingForMembers {
			s.waited++
		}
		return
	}
	o.step++
	switch o.step {
	case 1:
		s.release(o.plan.Release)
		s.writeStatus(o)
	default:
		for _, name := range slices.Sorted(maps.Keys(s.pods)) {
			if a := s.agent(name); a != nil && a.connected && s.rng.IntN(2) == 0 {
				s.give(s.pods[name])
			}
		}
		o.plan = nil
	}
}

func (s *simulation) advance(d time.Duration) { s.now = s.now.Add(d) }

// converge starts all pods, or ends all of them, and runs one operator until nothing changes.
func (s *simulation) converge() {
	running := earlyNames
	if s.group.Spec.Selector == nil {
		s.editMembers()
		running = allNames
	}
	if s.group.Spec.Selector == nil && !s.strict() && s.rng.IntN(4) == 0 {
		for _, name := range slices.Sorted(maps.Keys(s.pods)) {
			s.endPod(name)
		}
		running = nil
	}
	for _, name := range running {
		if pod := s.pods[name]; pod == nil || Finished(pod) || pod.DeletionTimestamp != nil {
			s.createPod(name)
		}
		s.agents[s.pods[name].UID].connected = true
	}
	o := s.operators[0]
	o.cutOffUntil = time.Time{}
	for range 100 {
		s.refresh(o)
		for range 4 {
			s.stepOperator(o)
		}
		for _, pod := range s.pods {
			s.give(pod)
		}
		s.advance(600 * time.Millisecond)
	}
	s.refresh(o)
	p := MakePlan(s.facts(o))
	list := s.group.Status.Protocol.MemberList
	wanted := s.group.Spec.Members
	if wanted == nil {
		wanted = parseMembers("a-0 1, a-1 2, a-2 3, a-3 4, a-4 5, a-5 6, a-6 7")
	}
	inOrder := slices.SortedFunc(slices.Values(list.Members),
		func(a, b v1.Member) int { return strings.Compare(a.Pod, b.Pod) })
	if list.State != v1.ListSettled || formatMembers(inOrder) != formatMembers(wanted) {
		s.t.Errorf("finally: got list %s, want members %s", formatList(list), formatMembers(wanted))
	}
	for _, m := range list.Members {
		if a := s.agent(m.Pod); a != nil && a.identity != string(list.Identities[m.Pod]) {
			s.t.Errorf("finally: got identity %s of %s, want %s", list.Identities[m.Pod], m.Pod, a.identity)
		}
	}
	if !equality.Semantic.DeepEqual(p.List, list) || p.Published != s.document.Published {
		s.t.Errorf("without a change, %s became %s, revision %d", formatList(list), formatList(p.List), p.Document.Revision)
	}
}
