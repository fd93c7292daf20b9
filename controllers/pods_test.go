package controllers_test

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// pod creates a running pod with a fake agent.
func (e *env) pod(name string, groups ...string) *fakeagent.Agent {
	e.t.Helper()
	return e.podWith(name, groups, func(*corev1.Pod) {})
}

// podWith creates a running pod with a fake agent after a change to its spec.
func (e *env) podWith(name string, groups []string, change func(*corev1.Pod)) *fakeagent.Agent {
	e.t.Helper()
	pod := e.podWithoutAgent(name, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1.AnnotationGroups: strings.Join(groups, ",")}
		pod.Labels = map[string]string{v1.LabelAgent: v1.AgentEnabled}
		pod.Spec.InitContainers = []corev1.Container{{
			Name: v1.AgentContainer, Image: "agent", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		}}
		change(pod)
	})
	return e.startAgent(name, strings.ReplaceAll(string(pod.UID), "-", "")[:16], groups...)
}

// startAgent starts the fake agent of a pod, without documents, and with a state directory of this identity.
func (e *env) startAgent(name, state string, groups ...string) *fakeagent.Agent {
	e.t.Helper()
	identity := fakeagent.Identity{
		Namespace: e.namespace, Pod: name, Groups: groups, State: state,
		Address: net.JoinHostPort(e.ip(name), strconv.Itoa(control.OperatorPort)), Network: &e.network,
	}
	if v1.IsWitness(name) {
		identity.Witness, identity.UID = true, string(e.findPod(name).UID)
	}
	agent, err := fakeagent.New(identity, e.certificates)
	must.Succeed(e.t, err)
	must.Succeed(e.t, agent.Run(e.t.Context()))
	e.t.Cleanup(func() { _ = agent.Stop() })
	e.mu.Lock()
	e.agents[name] = agent
	e.mu.Unlock()
	return agent
}

// podWithoutAgent creates a running pod without an agent.
func (e *env) podWithoutAgent(name string, change func(*corev1.Pod)) *corev1.Pod {
	e.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	change(pod)
	must.Succeed(e.t, e.client.Create(e.t.Context(), pod))
	e.mu.Lock()
	e.ips++
	ip := fmt.Sprintf("10.1.%d.%d", e.ips/250, e.ips%250+1)
	if strings.HasSuffix(name, "-six") {
		ip = fmt.Sprintf("fd00::%x", e.ips)
	}
	e.mu.Unlock()
	// The operator may have changed the pod already.
	patch := client.MergeFrom(pod.DeepCopy())
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP = ip
	pod.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	must.Succeed(e.t, e.client.Status().Patch(e.t.Context(), pod, patch))
	return pod
}

// deletePod stops a pod's agent, and deletes the pod without a grace period.
func (e *env) deletePod(name string) {
	e.t.Helper()
	e.mu.Lock()
	agent := e.agents[name]
	delete(e.agents, name)
	e.mu.Unlock()
	if agent != nil {
		must.Succeed(e.t, agent.Stop())
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
	must.Succeed(e.t, e.client.Delete(e.t.Context(), pod, client.GracePeriodSeconds(0)))
}

// elect makes all agents of a group report a coordinator, and report members without an agent as crashed.
func (e *env) elect(group, coordinator string, term uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	leadership := fakeagent.Leadership{
		Coordinator: coordinator, Term: term, ElectedAt: time.Now(), Crashed: map[string]bool{},
	}
	for _, agent := range e.agents {
		report, in := agent.Report(group)
		if !in {
			continue
		}
		for _, row := range report.Processes {
			leadership.Crashed[row.Name] = e.agents[row.Name] == nil
		}
		expect.Succeed(e.t, agent.SetLeadership(group, leadership))
	}
}

// electAndAwait also waits until the status has the coordinator.
func (e *env) electAndAwait(group, coordinator string, term uint64) {
	e.t.Helper()
	e.elect(group, coordinator, term)
	e.awaitCoordinator(group, coordinator, int64(term))
}

// version returns that of a group's list.
func (e *env) version(group string) int64 {
	e.t.Helper()
	return e.group(group).Status.Protocol.MemberList.Version
}

// awaitAdopted waits until agents report a list of the group that is newer than a version.
func (e *env) awaitAdopted(group string, before int64, pods ...string) {
	e.t.Helper()
	uid := string(e.group(group).UID)
	for _, pod := range pods {
		e.eventually(fmt.Sprintf("%s has adopted a list of %s after version %d", pod, group, before), func() bool {
			e.mu.Lock()
			agent := e.agents[pod]
			e.mu.Unlock()
			report, ok := agent.Report(group)
			return ok && report.UID == uid && int64(report.Version) > before
		})
	}
}

func (e *env) role(pod, group string) string {
	e.t.Helper()
	return e.findPod(pod).Labels[v1.RoleLabel(group)]
}

func (e *env) awaitRole(pod, group, role string) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("%s has the role %q in %s", pod, role, group),
		func() bool { return e.role(pod, group) == role })
}

// At no time, two pods have the label of the coordinator: the former one loses it first.
func TestOnePodHasTheLabelOfTheCoordinator(t *testing.T) {
	e := newEnv(t)
	var elected, demoting, overlap atomic.Bool
	promoted := make(chan struct{})
	o := e.startOperator(func(o *operator) {
		o.beforeWrite = func(r *http.Request) {
			switch {
			case !elected.Load():
			case strings.HasSuffix(r.URL.Path, "/pods/ledger-2"):
				demoting.Store(true)
				select {
				case <-promoted:
				case <-time.After(300 * time.Millisecond): // The other request waits for this one.
				}
			case strings.HasSuffix(r.URL.Path, "/pods/ledger-1") && demoting.Load() && !overlap.Swap(true):
				close(promoted)
			}
		}
		o.afterWrite = func(r *http.Request, _ *http.Response) {
			if strings.HasSuffix(r.URL.Path, "/pods/ledger-2") {
				demoting.Store(false)
			}
		}
	})
	e.createSettledGroup(o)
	elected.Store(true)
	e.elect("ledger", "ledger-1", 8)
	e.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
	e.awaitRole("ledger-2", "ledger", v1.RoleFollower)
	expect.Equalf(t, overlap.Load(), false, "ledger-1 gets the label of the coordinator while ledger-2 has it")
}
