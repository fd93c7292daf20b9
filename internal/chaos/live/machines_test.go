package live

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// record puts a program into PATH that records its arguments, one line for each call, and returns a function that reads them.
func record(t *testing.T, name, script string) func() string {
	t.Helper()
	folder := t.TempDir()
	calls := filepath.Join(folder, "calls")
	text := "#!/bin/sh\nprintf '%s|' \"$@\" >>" + calls + "; echo >>" + calls + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	return func() string {
		text := must.ReadFile(t, calls)
		return string(text)
	}
}

func TestMachinesOfKindAreContainers(t *testing.T) {
	calls := record(t, "docker", "")
	m, err := ParseMachines("docker")
	must.Succeed(t, err)
	isolate := &nodefault.Request{Action: nodefault.Isolate}
	if err := m.inject(t.Context(), "kind-worker", isolate); err != nil {
		t.Error(err)
	}
	if err := m.undo(t.Context(), "kind-worker", isolate); err != nil {
		t.Error(err)
	}
	one, other := strings.Repeat("1", 64), strings.Repeat("2", 64)
	if err := m.inject(t.Context(), "kind-worker", &nodefault.Request{Action: nodefault.Kill, Containers: []string{one, other}}); err != nil {
		t.Error(err)
	}
	// An empty ID is a part of the names of all cgroups, so all processes would be killed.
	for _, action := range []string{nodefault.Kill, nodefault.Stop, nodefault.Drop} {
		f := &nodefault.Request{Action: action, Containers: []string{""}}
		if err := m.inject(t.Context(), "kind-worker", f); err == nil || err.Error() != `"" isn't the ID of a container` {
			t.Errorf("%s of an empty ID: got error %v", action, err)
		}
	}
	want := "pause|kind-worker|\nunpause|kind-worker|\nexec|kind-worker|sh|-c|" + sendSignal + "|sh|KILL|" + one + "|" + other + "|\n"
	if got := calls(); got != want {
		t.Errorf("got calls\n%s\nwant\n%s", got, want)
	}
}

// The control plane of hack/cluster is a machine of its own, so that its outage doesn't affect pods. That of kind isn't.
func TestOutageOfTheAPIServerNeedsHackCluster(t *testing.T) {
	record(t, "docker", "")
	for text, want := range map[string]string{"docker": "it needs --machines hack:NAME", "hack:test": ""} {
		m, err := ParseMachines(text)
		must.Succeed(t, err)
		if got, err := m.notPossible(t.Context(), actions[chaos.APIServer]); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
}

// A kind cluster has no program that could delay packets.
func TestDelayNeedsPodsOrHackCluster(t *testing.T) {
	record(t, "docker", "")
	docker, err := ParseMachines("docker")
	must.Succeed(t, err)
	for machines, want := range map[Machines]string{
		docker: "it needs --machines pod", &localMachines{node: &thisNode{}}: "", &localMachines{node: &thisNode{lacks: "no queues"}}: "no queues",
	} {
		if got, err := machines.notPossible(t.Context(), actions[chaos.Delay]); got != want || err != nil {
			t.Errorf("%+v: got %q, %v, want %q", machines, got, err, want)
		}
	}
}

// thisNode records the faults of this computer.
type thisNode struct {
	lacks  string
	faults []nodefault.Request
	undone int
}

func (n *thisNode) Check(*nodefault.Request) map[string]string {
	return map[string]string{nodefault.Delay: n.lacks}
}

func (n *thisNode) Inject(r *nodefault.Request) (func() error, error) {
	n.faults = append(n.faults, *r)
	return func() error { n.undone++; return nil }, nil
}

func TestPacketsAreDelayedOnThisComputer(t *testing.T) {
	node := &thisNode{}
	r := runWithPod(&localMachines{node: node})
	done, err := r.onMachine(t.Context(), chaos.Delay, victim)
	if err != nil || done.hold != disturbanceTime {
		t.Fatalf("got %+v, %v, want a fault that lasts %s", done, err, disturbanceTime)
	}
	want := nodefault.Request{Action: nodefault.Delay, Containers: []string{"1"}, Addresses: []string{"10.0.0.1"}, Delay: packetDelay}
	if len(node.faults) != 1 || !reflect.DeepEqual(node.faults[0], want) {
		t.Errorf("got faults %+v, want %+v", node.faults, want)
	}
	for range 2 { // An interrupted run undoes its fault again.
		if err := done.undo(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if node.undone != 1 {
		t.Errorf("got the fault undone %d times, want once", node.undone)
	}
}

// If the pod is gone, so is its network. That isn't an error, but a helper must still learn that the fault is over.
func TestFaultOfPodThatIsGoneIsUndone(t *testing.T) {
	machines := &recordedMachines{}
	r := runWithPod(machines)
	done, err := r.onMachine(t.Context(), chaos.Partition, victim)
	must.Succeed(t, err)
	delete(r.observer.pods, types.UID(victim.UID))
	if err := done.undo(t.Context()); err != nil {
		t.Error(err)
	}
	if len(machines.undone) != 1 || machines.undone[0].Containers != nil {
		t.Errorf("got undone %+v, want one fault without containers", machines.undone)
	}
	if err := (&localMachines{}).undo(t.Context(), "node-1", &machines.undone[0]); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

// recordedMachines records what is undone.
type recordedMachines struct {
	Machines

	undone []nodefault.Request
}

func (*recordedMachines) inject(context.Context, string, *nodefault.Request) error { return nil }

func (m *recordedMachines) undo(_ context.Context, _ string, f *nodefault.Request) error {
	m.undone = append(m.undone, *f)
	return nil
}

var victim = chaos.PodState{Agent: chaos.Agent{Pod: "ledger-2", UID: "2"}, Node: "node-1"}

// runWithPod returns a run with the pod of the victim and another pod.
func runWithPod(machines Machines) *Run {
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: "application", ContainerID: "containerd://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}}}
	pod.Name, pod.UID = victim.Pod, types.UID(victim.UID)
	o := NewObserver(nil, ledger())
	o.pods[pod.UID] = &observedPod{Pod: pod}
	other := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.1"}}
	other.UID = "1"
	o.pods[other.UID] = &observedPod{Pod: other}
	return &Run{observer: o, Machines: machines, Subject: o.subject}
}

func TestOutageOfTheAPIServerEnds(t *testing.T) {
	calls := record(t, "cluster", "")
	r := &Run{Machines: &localMachines{tool: "cluster", cluster: "test"}}
	done, err := r.disconnectAPIServer(t.Context())
	if err != nil || done.hold == 0 {
		t.Fatalf("got %+v, %v, want a fault that lasts", done, err)
	}
	must.Succeed(t, done.undo(t.Context()))
	if got, want := calls(), "partition|control-plane|--name|test|\nheal|control-plane|--name|test|\n"; got != want {
		t.Errorf("got calls\n%s\nwant\n%s", got, want)
	}
}

func TestPacketsOfTheNodeOfAPodAreNotDropped(t *testing.T) {
	r := runWithPod(&localMachines{})
	r.observer.pod(victim.UID).Spec.HostNetwork = true
	if _, err := r.onMachine(t.Context(), chaos.Partition, victim); err == nil || err.Error() != "pod ledger-2 uses the network of its node" {
		t.Errorf("got %v, want the fault to be refused", err)
	}
}

func TestFailedRuntimeIsReported(t *testing.T) {
	record(t, "podman", "echo first; echo no such container >&2; exit 3")
	m, err := ParseMachines("podman")
	must.Succeed(t, err)
	if err := m.inject(t.Context(), "kind-worker", &nodefault.Request{Action: nodefault.Isolate}); err == nil || err.Error() != "podman: exit status 3: no such container" {
		t.Errorf("got %v, want the last line of the runtime's output", err)
	}
}

// On the machine of a throwaway cluster, the script runs without a runtime.
func TestSignalWithoutProcessIsAnError(t *testing.T) {
	m, err := ParseMachines("hack:test")
	must.Succeed(t, err)
	err = m.undo(t.Context(), "node-1", &nodefault.Request{Action: nodefault.Stop, Containers: []string{"no-cgroup-has-this-name-47114711"}})
	if err == nil || !strings.Contains(err.Error(), "no process of the containers runs") {
		t.Errorf("got %v, want an error", err)
	}
}

func TestParseMachinesRefusesOthers(t *testing.T) {
	for _, text := range []string{"", "minikube", "hack:"} {
		if m, err := ParseMachines(text); err == nil || !strings.Contains(err.Error(), "must be pod for any cluster, docker, podman, nerdctl") {
			t.Errorf("%q: got %v, %v, want an error", text, m, err)
		}
	}
}

func TestContainersOfAFault(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := &corev1.Pod{Status: corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "setup", ContainerID: "containerd://0"}, {Name: v1.AgentContainer, ContainerID: "containerd://1", State: running},
		},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "application", ContainerID: "containerd://2", State: running}},
	}}
	for kind, want := range map[string]string{chaos.KillAgent: "1", chaos.KillApp: "2", chaos.Freeze: "1 2"} {
		if got := strings.Join(containers(pod, kind), " "); got != want {
			t.Errorf("%s: got containers %q, want %q", kind, got, want)
		}
	}
}

func TestPacketsAreDroppedInBothDirections(t *testing.T) {
	calls := record(t, "docker", "")
	m, err := ParseMachines("docker")
	must.Succeed(t, err)
	id := strings.Repeat("1", 64)
	drop := &nodefault.Request{Action: nodefault.Drop, Containers: []string{id}, Addresses: []string{"10.0.0.1", "fd00::1"}, Percent: 30}
	if err := m.inject(t.Context(), "kind-worker", drop); err != nil {
		t.Error(err)
	}
	want := "exec|kind-worker|sh|-c|" + runNFT + "|sh|" + id + "|add table inet conclave_chaos; " +
		"add chain inet conclave_chaos input { type filter hook input priority 0; }; " +
		"add rule inet conclave_chaos input ip saddr 10.0.0.1 numgen random mod 100 < 30 drop; " +
		"add rule inet conclave_chaos input ip6 saddr fd00::1 numgen random mod 100 < 30 drop; " +
		"add chain inet conclave_chaos output { type filter hook output priority 0; }; " +
		"add rule inet conclave_chaos output ip daddr 10.0.0.1 numgen random mod 100 < 30 drop; " +
		"add rule inet conclave_chaos output ip6 daddr fd00::1 numgen random mod 100 < 30 drop|\n"
	if got := calls(); got != want {
		t.Errorf("got calls\n%s\nwant\n%s", got, want)
	}
}
