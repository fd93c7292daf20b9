package live

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// record puts a program into PATH that records its arguments, one line for each call, and returns a function that
// reads them.
func record(t *testing.T, name, script string) func() string {
	t.Helper()
	folder := t.TempDir()
	calls := filepath.Join(folder, "calls")
	text := "#!/bin/sh\necho \"$*\" >>" + calls + "\n" + script + "\n"
	must.Succeed(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o700)) //nolint:gosec // it must be executable
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	return func() string { return string(must.ReadFile(t, calls)) }
}

// machines are those of a docker that prints the name of a control plane.
func machines(t *testing.T) (m Machines, calls func() string) {
	t.Helper()
	calls = record(t, "docker", "echo kind-control-plane")
	m, err := ParseMachines("docker")
	must.Succeed(t, err)
	return m, calls
}

// Each fault on a machine is one that its end undoes.
func TestFaultsOnMachinesEnd(t *testing.T) {
	for kind, want := range map[string][2]string{
		chaos.KillAgent: {" KILL 0 " + id("a"), ""},
		chaos.KillApp:   {" KILL 0 " + id("b"), ""},
		chaos.Freeze:    {" STOP 0 " + id("a") + " " + id("b"), " CONT 0 " + id("a") + " " + id("b")},
		chaos.Node:      {"pause node-1", "unpause node-1"},
		chaos.Partition: {"iifname eth0 ip saddr { 10.0.0.1, 10.0.0.9 } drop", "delete table inet conclave_chaos"},
		chaos.Loss: {
			"ip daddr { 10.0.0.1, 10.0.0.9 } numgen random mod 100 < 30 drop", "delete table inet conclave_chaos",
		},
		chaos.Delay: {"netem delay", "tc qdisc del"},
	} {
		m, calls := machines(t)
		done, err := runWithPod(m).onMachine(t.Context(), kind, victim)
		must.Succeed(t, err)
		expect.Containsf(t, calls(), want[0], "%s: calls", kind)
		if (done.undo == nil) != (want[1] == "") {
			t.Fatalf("%s: got %+v, want a fault that lasts: %t", kind, done, want[1] != "")
		}
		if done.undo == nil {
			continue
		}
		injected := calls()
		must.Succeed(t, done.undo(t.Context()))
		expect.Containsf(t, strings.TrimPrefix(calls(), injected), want[1], "%s: calls at its end", kind)
	}
}

// The nodes of the control plane are found by the label of the cluster.
func TestOutageOfTheAPIServerEnds(t *testing.T) {
	m, calls := machines(t)
	done, err := runWithPod(m).disconnectAPIServer(t.Context())
	if err != nil || done.hold != outageTime {
		t.Fatalf("got %+v, %v, want a fault that lasts %s", done, err, outageTime)
	}
	must.Succeed(t, done.undo(t.Context()))
	lines := strings.Split(calls(), "\n")
	const nft = "exec kind-control-plane nft add table "
	for i, want := range []string{"inspect ", "ps ", nft, "inspect ", "ps ", nft} {
		expect.Containsf(t, "\n"+lines[i], "\n"+want, "call %d", i)
	}
	var drops []bool
	for _, line := range lines {
		if strings.HasPrefix(line, "exec") {
			drops = append(drops, strings.Contains(line, "iifname eth0 drop"))
		}
	}
	must.Equalf(t, fmt.Sprint(drops), "[true false]", "rules that drop packets, only for the fault")
}

// If the pod is gone, so is its network. That isn't an error.
func TestFaultOfPodThatIsGoneIsUndone(t *testing.T) {
	m, calls := machines(t)
	r := runWithPod(m)
	done, err := r.onMachine(t.Context(), chaos.Partition, victim)
	must.Succeed(t, err)
	before := calls()
	delete(r.observer.pods, types.UID(victim.UID))
	must.Succeed(t, done.undo(t.Context()))
	expect.Equalf(t, calls(), before, "calls")
}

var victim = chaos.PodState{Agent: chaos.Agent{Pod: "ledger-2", UID: "2"}, Node: "node-1"}

// id returns an ID of a container.
func id(letter string) string { return strings.Repeat(letter, 64) }

// runWithPod returns a run with the pod of the victim, another pod, and a witness in the operator's namespace.
func runWithPod(machines Machines) *Run {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := &corev1.Pod{Status: corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "setup", ContainerID: "containerd://" + id("0")},
			{Name: v1.AgentContainer, ContainerID: "containerd://" + id("a"), State: running},
		},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "application", ContainerID: "containerd://" + id("b"), State: running},
		},
	}}
	pod.Name, pod.UID, pod.Spec.NodeName = victim.Pod, types.UID(victim.UID), victim.Node
	group := ledger()
	group.latest = &v1.ElectionGroup{Status: v1.ElectionGroupStatus{Processes: []v1.Process{{Pod: "conclave-witness-0"}}}}
	witness := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.9"}}
	witness.Namespace, witness.Name = "elections", "conclave-witness-0"
	c := fake.NewClientBuilder().WithScheme(testclient.Scheme()).WithObjects(witness).Build()
	o := NewObserver(nil, group)
	o.pods[pod.UID] = &observedPod{Pod: pod}
	other := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.1"}}
	other.UID = "1"
	o.pods[other.UID] = &observedPod{Pod: other}
	return &Run{observer: o, Machines: machines, Subject: o.subject, Client: c, OperatorNamespace: witness.Namespace}
}

func TestPacketsOfTheNodeOfAPodAreNotDropped(t *testing.T) {
	m, _ := machines(t)
	r := runWithPod(m)
	r.observer.pod(victim.UID).Spec.HostNetwork = true
	_, err := r.onMachine(t.Context(), chaos.Partition, victim)
	if err == nil || err.Error() != "pod ledger-2 uses the network of its node" {
		t.Errorf("got %v, want the fault to be refused", err)
	}
}

func TestParseMachinesRefusesOthers(t *testing.T) {
	for _, text := range []string{"", "minikube", "pod"} {
		m, err := ParseMachines(text)
		expect.ErrorContainsf(t, err, "must be docker, podman, nerdctl, for a kind cluster", "%q: %v", text, m)
	}
}
