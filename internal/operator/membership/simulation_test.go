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
)

var (
	runs = flag.Int("lives", 100, "how many groups live on paper")
	seed = flag.Uint64("seed", 1, "that of the first one")
)

// TestOperatorOnPaper lets groups live through edits, pods that come and go,
// agents that adopt late, and two operators that act on old copies and are killed
// between two writes. In the end all is calm, and the list must be the wanted one.
//
//	operator:  read a copy ... plan ... status | ConfigMap | push
//	                                           ^           ^ killed here, or here
func TestOperatorOnPaper(t *testing.T) {
	for i := range uint64(*runs) {
		w := newSimulation(t, *seed+i)
		for range 600 {
			w.randomEvent()
			w.advance(time.Duration(w.rng.IntN(120)) * time.Millisecond)
			if t.Failed() {
				t.Fatalf("replay it with -run TestOperatorOnPaper -lives 1 -seed %d", *seed+i)
			}
		}
		w.converge()
		if t.Failed() {
			t.Fatalf("replay it with -run TestOperatorOnPaper -lives 1 -seed %d", *seed+i)
		}
	}
}

// agent is the one of a pod. It keeps what it has adopted as long as its pod is there.
type agent struct {
	version   uint32
	revision  int64
	connected bool
	// steps are the versions that it has adopted.
	adoptions []adoption
	ended     time.Time
}

type adoption struct {
	version uint32
	at      time.Time
}

// usedUntil is until when the agent has gone by a version or an older one, unless it
// goes on.
func (a *agent) usedUntil(version int64) (until time.Time, goesOn bool) {
	later := slices.IndexFunc(a.adoptions, func(s adoption) bool { return int64(s.version) > version })
	switch {
	case later == 0 || len(a.adoptions) == 0: // It began with a later one, or hasn't yet.
		return until, false
	case later > 0:
		return a.adoptions[later].at, false
	}
	return a.ended, a.ended.IsZero()
}

// world is the API server, the pods with their agents, and two operators.
type simulation struct {
	t   *testing.T
	rng *rand.Rand
	now time.Time

	group           *v1.ElectionGroup // as the API server has it
	writes          int
	document        *control.Document
	configMapWrites int // writes of the ConfigMap
	pods            map[string]*corev1.Pod
	agents          map[types.UID]*agent
	// ever are all agents that there have been of a name.
	allAgents map[string][]*agent
	created   int

	// lists are all that have ever been published, and lostMajorityAt is when they had no
	// majority any more.
	published      map[int64]*v1.MemberList
	lostMajorityAt map[int64]time.Time

	operators [2]*operator
}

// staleness is how late an operator may learn of a pod.
const staleness = 400 * time.Millisecond

// operator is what one remembers, and what it has yet to write.
type operator struct {
	group           *v1.ElectionGroup // a copy
	document        *control.Document // a copy
	configMapWrites int
	since           map[string]time.Time
	plan            *Plan
	step            int
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	w := &simulation{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), now: noon, pods: map[string]*corev1.Pod{}, agents: map[types.UID]*agent{},
		allAgents: map[string][]*agent{}, published: map[int64]*v1.MemberList{}, lostMajorityAt: map[int64]time.Time{},
	}
	f := newSelectorFacts(v1.PriorityFrom{Ordinal: v1.HighestFirst})
	if seed%2 == 0 {
		f = newDeclaredFacts("")
	}
	w.group = f.Group
	w.editMembers()
	for i := range w.operators {
		w.operators[i] = &operator{since: map[string]time.Time{}, group: w.group.DeepCopy()}
	}
	return w
}

// agent is that of a pod which runs.
func (w *simulation) agent(name string) *agent {
	if pod := w.pods[name]; pod != nil {
		return w.agents[pod.UID]
	}
	return nil
}

func (w *simulation) randomName() string { return fmt.Sprint("a-", w.rng.IntN(7)) }

// edit changes the declared members.
func (w *simulation) editMembers() {
	w.group.Generation++
	w.bumpResourceVersion()
	if w.group.Spec.Selector != nil {
		return
	}
	var members []v1.Member
	for i := range 7 {
		if w.rng.IntN(2) == 0 {
			members = append(members, v1.Member{Pod: fmt.Sprint("a-", i), Priority: int32(i + 1 + 10*w.rng.IntN(3))})
		}
	}
	if len(members) > 0 {
		w.group.Spec.Members = members
	} else {
		w.group.Spec.Members = parseMembers("a-0 1")
	}
}

// wrote gives the group its next resource version.
func (w *simulation) bumpResourceVersion() {
	w.writes++
	w.group.ResourceVersion = strconv.Itoa(w.writes)
}

func (w *simulation) randomEvent() {
	name := w.randomName()
	switch pod := w.pods[name]; w.rng.IntN(12) {
	case 0:
		if w.rng.IntN(4) == 0 {
			w.editMembers()
		}
	case 1:
		if pod == nil {
			w.createPod(name)
		}
	case 2:
		if pod != nil && w.rng.IntN(3) == 0 {
			w.endPod(name)
		}
	case 3:
		if a := w.agent(name); a != nil {
			a.connected = !a.connected
		}
	case 4, 5:
		if pod != nil {
			w.mount(pod) // The kubelet has brought the ConfigMap.
		}
	case 6:
		o := w.operators[w.rng.IntN(2)]
		if w.rng.IntN(6) == 0 {
			*o = operator{since: map[string]time.Time{}, group: o.group, document: o.document, configMapWrites: o.configMapWrites} // It was killed.
		}
	case 7:
		o := w.operators[w.rng.IntN(2)]
		w.refresh(o)
	default:
		w.stepOperator(w.operators[w.rng.IntN(2)])
	}
}

func (w *simulation) createPod(name string) {
	w.created++
	f := Facts{Connected: map[types.UID]bool{}, Nodes: map[string]*corev1.Node{}}
	pod := f.addPod(name)
	pod.UID = types.UID(fmt.Sprint(name, "/", w.created))
	pod.CreationTimestamp = metav1.NewTime(w.now)
	w.pods[name] = pod
	w.agents[pod.UID] = &agent{connected: true}
	w.allAgents[name] = append(w.allAgents[name], w.agents[pod.UID])
	w.mount(pod) // It comes with its certificate.
}

func (w *simulation) endPod(name string) {
	pod := w.pods[name]
	if a := w.agent(name); a != nil {
		a.ended = w.now
	}
	delete(w.agents, pod.UID)
	delete(w.pods, name)
	if !Finished(pod) && w.rng.IntN(3) == 0 {
		failed := pod.DeepCopy() // Its object stays for a while.
		failed.Status.Phase = corev1.PodFailed
		w.pods[name] = failed
	}
}

// mount has a pod's agent see the document that is published.
func (w *simulation) mount(pod *corev1.Pod) {
	a, d := w.agents[pod.UID], w.document
	if a == nil || d == nil || d.Revision <= a.revision {
		return
	}
	a.revision = d.Revision
	if d.Group.Version < a.version {
		w.t.Errorf("%s was told version %d after %d", pod.Name, d.Group.Version, a.version)
	}
	if d.Group.Version > a.version {
		a.version = d.Group.Version
		a.adoptions = append(a.adoptions, adoption{a.version, w.now})
	}
}

func (w *simulation) refresh(o *operator) {
	o.group, o.document, o.configMapWrites, o.plan = w.group.DeepCopy(), w.document, w.configMapWrites, nil
}

// act lets an operator do its next write, or make the next plan.
func (w *simulation) stepOperator(o *operator) {
	if o.plan == nil {
		p := MakePlan(w.facts(o))
		o.plan, o.step = &p, 0
		return
	}
	o.step++
	switch o.step {
	case 1:
		w.writeStatus(o)
	case 2:
		w.writeConfigMap(o)
	default:
		for _, pod := range w.pods {
			if a := w.agents[pod.UID]; a != nil && a.connected && w.rng.IntN(2) == 0 {
				w.mount(pod)
			}
		}
		o.plan = nil
	}
}

// facts are what an operator believes.
func (w *simulation) facts(o *operator) Facts {
	f := Facts{
		Group: o.group, Published: o.document, Now: w.now, FirstListComplete: true, Nodes: map[string]*corev1.Node{},
		Connected: map[types.UID]bool{}, Adopted: map[string]bool{}, Missing: map[string]bool{},
	}
	if f.Published != nil {
		f.Revision = f.Published.Revision
	}
	wait := AdoptionWait(o.group)
	has := func(fact string, is bool) bool {
		if !is {
			delete(o.since, fact)
			return false
		}
		if _, known := o.since[fact]; !known {
			o.since[fact] = w.now
		}
		return w.now.Sub(o.since[fact]) >= wait
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pod := w.pods[name]
		f.Pods = append(f.Pods, pod)
		if a := w.agents[pod.UID]; a != nil {
			f.Connected[pod.UID] = a.connected
		}
	}
	list := f.newestList()
	for i := range 7 {
		if list == nil {
			break
		}
		name := fmt.Sprint("a-", i)
		pod, a := w.pods[name], w.agent(name)
		// It learns of a new pod late.
		there := pod != nil && !Finished(pod) && w.now.Sub(pod.CreationTimestamp.Time) > staleness
		published := f.Published != nil && int64(f.Published.Group.Version) == list.Version
		f.Missing[name] = has(fmt.Sprint("missing ", name, list.Version), published && !there)
		if a != nil && a.connected {
			f.Adopted[name] = has(fmt.Sprint("adopted ", pod.UID, list.Version), int64(a.version) >= list.Version)
		}
	}
	return f
}

// writeStatus does what the API server would: it compares resource versions, and
// then goes by the rules of the schema.
func (w *simulation) writeStatus(o *operator) {
	list := o.plan.List
	if equality.Semantic.DeepEqual(list, o.group.Status.MemberList) {
		return
	}
	if o.group.ResourceVersion != w.group.ResourceVersion {
		o.plan = nil // A conflict: it has to read again.
		return
	}
	if why := violation(w.group.Status.MemberList, list); why != "" {
		w.t.Errorf("after %s came %s: %s", formatList(w.group.Status.MemberList), formatList(list), why)
	}
	w.group.Status.MemberList = list.DeepCopy()
	w.bumpResourceVersion()
	o.group = w.group.DeepCopy()
	w.checkList(list)
}

func (w *simulation) writeConfigMap(o *operator) {
	if o.plan.Document == nil || o.document != nil && o.document.Revision == o.plan.Document.Revision {
		return
	}
	if o.configMapWrites != w.configMapWrites {
		o.plan = nil
		return
	}
	w.configMapWrites++
	w.document = o.plan.Document
	o.document, o.configMapWrites = w.document, w.configMapWrites
	at := int64(w.document.Group.Version)
	if known := w.published[at]; known == nil || formatMembers(known.Members) != formatMembers(listMembers(w.document.Group.Members)) {
		w.t.Errorf("version %d was published as %s, which wasn't in the status before", at, formatMembers(listMembers(w.document.Group.Members)))
	}
}

func (w *simulation) advance(d time.Duration) { w.now = w.now.Add(d) }

// calm brings all pods up and lets one operator work.
func (w *simulation) converge() {
	if w.group.Spec.Selector == nil {
		w.editMembers()
	}
	for i := range 7 {
		name := fmt.Sprint("a-", i)
		if pod := w.pods[name]; pod == nil || Finished(pod) {
			w.createPod(name)
		}
		w.agents[w.pods[name].UID].connected = true
	}
	o := w.operators[0]
	for range 100 {
		w.refresh(o)
		for range 4 {
			w.stepOperator(o)
		}
		for _, pod := range w.pods {
			w.mount(pod)
		}
		w.advance(600 * time.Millisecond)
	}
	w.refresh(o)
	p := MakePlan(w.facts(o))
	list := w.group.Status.MemberList
	wanted := w.group.Spec.Members
	if wanted == nil {
		wanted = parseMembers("a-0 1, a-1 2, a-2 3, a-3 4, a-4 5, a-5 6, a-6 7")
	}
	inOrder := slices.SortedFunc(slices.Values(list.Members), func(a, b v1.Member) int { return strings.Compare(a.Pod, b.Pod) })
	if list.State != v1.ListSettled || formatMembers(inOrder) != formatMembers(wanted) {
		w.t.Errorf("in the end there is %s, and wanted was %s", formatList(list), formatMembers(wanted))
	}
	if !equality.Semantic.DeepEqual(p.List, list) || !equality.Semantic.DeepEqual(p.Document, w.document) {
		w.t.Errorf("nothing happens, and %s becomes %s, revision %d", formatList(list), formatList(p.List), p.Document.Revision)
	}
}
