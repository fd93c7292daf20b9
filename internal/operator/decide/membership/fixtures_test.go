package membership

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// noon is before the beginning of 2026: versions are 1, 2, 3 and so on, unless a test advances the clock to that.
var noon = time.Date(2025, time.December, 31, 12, 0, 0, 0, time.UTC)

// newDeclaredFacts returns the facts of a group with declared members, as in "a 10, b 20".
// It has no pods, so no list waits for a majority.
func newDeclaredFacts(members string) *planner {
	f := &planner{Facts: &facts.Facts{
		Pods: map[string]*corev1.Pod{}, Agents: map[string]facts.Agent{}, Nodes: map[string]*corev1.Node{},
	}, Waits: Waits{MajorityLost: true, Adopted: map[string]bool{}, Missing: map[string]bool{}}}
	f.Now = noon
	f.Group = &v1.ElectionGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger", UID: "6f0c", Generation: 1},
	}
	f.Group.Spec.Members = parseMembers(members)
	return f
}

// newSelectorFacts returns the facts of a group with a selector.
func newSelectorFacts(from v1.PriorityFrom) *planner {
	f := newDeclaredFacts("")
	f.Group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "ledger"}}
	f.Group.Spec.PriorityFrom = &from
	return f
}

// addPod adds a selected pod that runs on its own node and has a connected agent. Each pod
// is created one second after the one before.
func (f *planner) addPod(name string) *corev1.Pod {
	n := len(f.Pods)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "bank", Name: name, UID: types.UID(fmt.Sprint(name, n)),
			CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(n) * time.Second)),
			Labels:            map[string]string{"app": "ledger", v1.LabelAgent: v1.AgentEnabled},
			Annotations:       map[string]string{v1.AnnotationGroups: "ledger"},
		},
		Spec:   corev1.PodSpec{NodeName: "node-" + name},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.%d.%d", n/250, 1+n%250)},
	}
	f.Pods[name] = pod
	f.Nodes["node-"+name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}}
	f.Agents[name] = facts.Agent{Connected: true, Identity: identityOf(pod)}
	return pod
}

// changeAgent changes what is known about the agent of a pod.
func (f *planner) changeAgent(pod string, change func(*facts.Agent)) {
	agent := f.Agents[pod]
	change(&agent)
	f.Agents[pod] = agent
}

// disconnect ends the connections to the agents of pods.
func (f *planner) disconnect(pods ...string) {
	for _, pod := range pods {
		f.changeAgent(pod, func(a *facts.Agent) { a.Connected = false })
	}
}

// reportVersion makes the agent of a pod report a version of the list.
func (f *planner) reportVersion(pod string, version uint32) {
	f.changeAgent(pod, func(a *facts.Agent) { a.Report = &control.Report{UID: "6f0c", Version: version} })
}

// plan makes a plan.
func (f *planner) plan() Plan { return MakePlan(f.Facts, f.Waits) }

// identityOf returns the identity of the state directory of a new pod.
func identityOf(pod *corev1.Pod) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(pod.UID)) // A hash never returns an error.
	return memberlist.FormatIdentity(h.Sum64())
}

func (f *planner) addPods(names ...string) *planner {
	for _, name := range names {
		f.addPod(name)
	}
	return f
}

// findPod returns the pod with a name, or nil.
func (f *planner) findPod(name string) *corev1.Pod { return f.Pods[name] }

// deletePod deletes a pod from the API server.
func (f *planner) deletePod(name string) {
	delete(f.Pods, name)
	delete(f.Agents, name)
}

// lose deletes pods for longer than MissingPodGrace.
func (f *planner) lose(pods ...string) {
	for _, pod := range pods {
		f.deletePod(pod)
		f.Missing[pod] = true
	}
}

// step makes a plan, and stores it in the facts for the next one.
func (f *planner) step() Plan {
	p := f.plan()
	f.Group.Status.Protocol.MemberList = p.List
	if p.Document != nil {
		f.Published, f.Revision = &p.Published, p.Document.Revision
	}
	return p
}

// settle makes plans until the list has settled. All members adopt it.
func (f *planner) settle() Plan {
	for range 100 {
		p := f.step()
		if p.List == nil || p.List.State == v1.ListSettled && f.plan().List.Version == p.List.Version {
			f.Adopted = map[string]bool{}
			return p
		}
		for _, m := range p.List.Members {
			f.Adopted[m.Pod] = true
		}
		if p.List.Previous != nil {
			for _, m := range p.List.Previous.Members {
				f.Adopted[m.Pod] = true
			}
		}
	}
	panic("the list does not settle: " + formatList(f.Group.Status.Protocol.MemberList))
}

func parseMembers(list string) []v1.Member {
	var members []v1.Member
	for entry := range strings.SplitSeq(list, ", ") {
		var m v1.Member
		if _, err := fmt.Sscanf(entry, "%s %d", &m.Pod, &m.Priority); err == nil {
			members = append(members, m)
		}
	}
	return members
}

func formatMembers(members []v1.Member) string {
	var all []string
	for _, m := range members {
		all = append(all, fmt.Sprint(m.Pod, " ", m.Priority))
	}
	return strings.Join(all, ", ")
}

// formatList formats a list, as in "v2 Adopting: a 10, b 20; after v1: a 10; departed: c".
func formatList(l *v1.MemberList) string {
	if l == nil {
		return "none"
	}
	text := fmt.Sprintf("v%d %s: %s", l.Version, l.State, formatMembers(l.Members))
	if l.Previous != nil {
		text += fmt.Sprintf("; after v%d: %s", l.Previous.Version, formatMembers(l.Previous.Members))
	}
	if len(l.Departed) > 0 {
		text += "; departed: " + strings.Join(l.Departed, ", ")
	}
	return text
}

func formatProblem(p *Problem) string {
	if p == nil {
		return ""
	}
	return string(p.Reason) + ": " + p.Message
}
