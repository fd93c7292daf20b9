package membership

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// The states of a container.
var (
	waiting    = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	running    = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	terminated = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
)

// hasAgent makes a pod run an agent that is in the group, with its finalizer.
func hasAgent(pod *corev1.Pod) {
	pod.Spec.InitContainers = []corev1.Container{{Name: v1.AgentContainer}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: v1.AgentContainer, State: running}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: running}}
	pod.Finalizers = []string{v1.StopFinalizer("ledger")}
}

func reported(pod *corev1.Pod, phase corev1.PodPhase, agent, app corev1.ContainerState) {
	pod.Status.Phase = phase
	pod.Status.InitContainerStatuses[0].State = agent
	pod.Status.ContainerStatuses[0].State = app
}

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.NewTime(noon)) }

func notReady(node *corev1.Node) {
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
}

// TestWhatProvesThatAPodHasStopped tests what counts in Strict, beside what counts in Majority.
func TestWhatProvesThatAPodHasStopped(t *testing.T) {
	report := func(phase corev1.PodPhase, agent, app corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) { reported(p, phase, agent, app) }
	}
	pending := corev1.PodStatus{Phase: corev1.PodPending}
	lost := func(n *corev1.Node) {
		notReady(n)
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	}
	for name, c := range map[string]struct {
		inStrict, inMajority bool
		deleted              bool
		pod                  func(*corev1.Pod)
		node                 func(*corev1.Node)
		nodeIsRemoved        bool
		confirm              string
	}{
		"it runs": {},
		"it is force-deleted while its node is cut off": {deleted: true, node: notReady},
		"its node is removed, and the garbage collector has marked it": {
			inMajority: true, deleted: true, nodeIsRemoved: true, pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		},
		"the kubelet has reported that all containers ended": {
			inStrict: true, inMajority: true, pod: report(corev1.PodFailed, terminated, terminated),
		},
		"the kubelet has reported that after a deletion": {
			inStrict: true, inMajority: true, deleted: true, pod: report(corev1.PodSucceeded, terminated, terminated),
		},
		"a container never started": {
			inStrict: true, inMajority: true, pod: report(corev1.PodFailed, terminated, waiting),
		},
		"all containers ended, but may restart": {deleted: true, pod: report(corev1.PodRunning, terminated, terminated)},
		"the agent had just crashed when the node was cut off": {
			inMajority: true, deleted: true, pod: report(corev1.PodFailed, terminated, running),
		},
		"the agent waits for its restart": {
			inMajority: true, deleted: true, pod: report(corev1.PodFailed, waiting, waiting),
		},
		"the kubelet has reported nothing": {inMajority: true, deleted: true, pod: func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed}
		}},
		"it was never scheduled": {inStrict: true, deleted: true, pod: func(p *corev1.Pod) { p.Spec.NodeName = "" }},
		"it isn't scheduled yet": {pod: func(p *corev1.Pod) { p.Spec.NodeName = "" }},
		"its successor waits for a node": {inStrict: true, inMajority: true, pod: func(p *corev1.Pod) {
			p.Finalizers, p.Spec.NodeName, p.Status = nil, "", pending
		}},
		"its successor has a node, and no certificate": {
			inStrict: true, pod: func(p *corev1.Pod) { p.Finalizers, p.Status = nil, pending },
		},
		"its successor has a certificate, and the kubelet's report is late": {
			pod: func(p *corev1.Pod) { p.Status = pending },
		},
		"its agent started before the group became Strict": {
			pod: func(p *corev1.Pod) { p.Finalizers, p.Status.Phase = nil, corev1.PodPending },
		},
		"its node is out of service": {inStrict: true, deleted: true, node: lost},
		"its node is ready with the taint": {deleted: true, node: func(n *corev1.Node) {
			lost(n)
			n.Status.Conditions[0].Status = corev1.ConditionTrue
		}},
		"it isn't deleted from that node": {node: lost},
		"a user confirms it":              {inStrict: true, deleted: true, confirm: "b/b1, a/a0"},
		"a user confirms another pod":     {deleted: true, confirm: "b/a0,a/b1"},
		"a user confirms a pod that runs": {confirm: "a/a0"},
	} {
		f := newDeclaredFacts("a 1")
		pod := f.addPod("a")
		if hasAgent(pod); c.deleted {
			deleted(pod)
		}
		if c.pod != nil {
			c.pod(pod)
		}
		if c.node != nil {
			c.node(f.Nodes["node-a"])
		}
		if c.nodeIsRemoved {
			delete(f.Nodes, "node-a")
		}
		f.Group.Annotations = map[string]string{v1.AnnotationConfirmStopped: c.confirm}
		for mode, want := range map[v1.SafetyMode]bool{
			v1.Strict: c.inStrict, v1.Majority: c.inMajority, v1.Available: c.inMajority,
		} {
			f.Group.Spec.Safety.Mode = mode
			expect.Equalf(t, Gone(f.Facts, "a"), want, "%s, %s: gone", name, mode)
		}
	}
}

// names lists the names of pods.
func names(pods []*corev1.Pod) string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return strings.Join(all, " ")
}

func TestPodsAreHeldInStrictMode(t *testing.T) {
	f := newDeclaredFacts("a 1")
	f.Group.Spec.Safety.Mode = v1.Strict
	for _, name := range []string{
		"held", "joins", "started", "never-ran", "no-agent", "other-group", "deleted", "stopped",
	} {
		pod := f.addPod(name)
		hasAgent(pod)
		f.changeAgent(name, func(a *facts.Agent) { a.Connected = name == "joins" || name == "deleted" })
		switch name {
		case "held":
		case "stopped":
			reported(pod, corev1.PodSucceeded, terminated, terminated)
		default:
			pod.Finalizers = []string{"example.org/other"}
		}
	}
	f.findPod("joins").Status.InitContainerStatuses = nil // The kubelet's report is late.
	f.findPod("never-ran").Status.InitContainerStatuses[0].State = waiting
	f.findPod("no-agent").Spec.InitContainers = nil
	f.findPod("other-group").Annotations[v1.AnnotationGroups] = "audit"
	deleted(f.findPod("deleted")) // The API server accepts no new finalizers for it.
	p := f.plan()
	expect.Equalf(t, names(p.Hold), "joins started", "held in Strict")
	expect.Equalf(t, names(p.Release), "stopped", "released in Strict")
	f.Group.Spec.Safety.Mode = v1.Majority
	p = f.plan()
	expect.Equalf(t, names(p.Hold), "", "held in Majority")
	expect.Equalf(t, names(p.Release), "held stopped", "released in Majority")
}

// TestUnknownStopIsReported tests when and how the status asks for a confirmation.
func TestUnknownStopIsReported(t *testing.T) {
	const command = "kubectl annotate electiongroup ledger --namespace bank --overwrite conclave.dev/confirm-stopped="
	f := newDeclaredFacts("a 10, b 20, c 30").addPods("a", "b", "c")
	f.Group.Spec.Safety.Mode = v1.Strict
	for _, pod := range f.Pods {
		hasAgent(pod)
	}
	f.settle()
	deleted(f.findPod("b"))
	p := f.plan()
	expect.Equalf(t, formatProblem(p.Problem), "", "at once")
	if want := noon.Add(10 * time.Second); !p.RequeueAt.Equal(want) {
		t.Errorf("got the next plan at %v, want it at %v", p.RequeueAt, want)
	}
	f.Now = p.RequeueAt
	const one = "b was deleted, but may still run on a node that is cut off. Make sure that it has stopped, and " +
		"confirm it: " + command + "b/b1"
	expect.Equalf(t, formatProblem(f.plan().Problem), "StopUnconfirmed: "+one, "later")
	for annotation, want := range map[string]string{
		"b":    "Annotation conclave.dev/confirm-stopped must list POD/UID, separated by commas, got \"b\". " + one,
		"b/b0": "Annotation conclave.dev/confirm-stopped names b/b0, but the UID of this pod is b1. " + one,
		"a/a0": "Annotation conclave.dev/confirm-stopped names a, which isn't being deleted: " +
			"delete the pod first. " + one,
		"x/former":       one,
		"x/former, b/b1": "",
	} {
		f.Group.Annotations = map[string]string{v1.AnnotationConfirmStopped: annotation}
		if want != "" {
			want = "StopUnconfirmed: " + want
		}
		expect.Equalf(t, formatProblem(f.plan().Problem), want, "%s", annotation)
	}
	f.Group.Annotations = nil
	for _, pod := range f.Pods {
		deleted(pod)
	}
	expect.Equalf(t, formatProblem(f.plan().Problem),
		"StopUnconfirmed: a, b and c were deleted, but may still run on a node that is cut off. "+
			"Make sure that they have stopped, and confirm it: "+command+"a/a0,b/b1,c/c2", "three")
	f.Group.Spec.Safety.Mode = v1.Majority
	expect.Equalf(t, formatProblem(f.plan().Problem), "", "in Majority")
}
