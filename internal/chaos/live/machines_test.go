package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
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
		text, err := os.ReadFile(calls)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func TestMachinesOfKindAreContainers(t *testing.T) {
	calls := record(t, "docker", "")
	m, err := ParseMachines("docker")
	if err != nil {
		t.Fatal(err)
	}
	isolate := &nodefault.Request{Action: nodefault.Isolate}
	if err := m.inject(t.Context(), "kind-worker", isolate); err != nil {
		t.Error(err)
	}
	if err := m.undo(t.Context(), "kind-worker", isolate); err != nil {
		t.Error(err)
	}
	if err := m.inject(t.Context(), "kind-worker", &nodefault.Request{Action: nodefault.Kill, Containers: []string{"abc", "def"}}); err != nil {
		t.Error(err)
	}
	want := "pause|kind-worker|\nunpause|kind-worker|\nexec|kind-worker|sh|-c|" + sendSignal + "|sh|KILL|abc|def|\n"
	if got := calls(); got != want {
		t.Errorf("got calls\n%s\nwant\n%s", got, want)
	}
}

// The control plane of hack/cluster is a machine of its own, so that its outage doesn't affect pods. That of kind isn't.
func TestOutageOfTheAPIServerNeedsHackCluster(t *testing.T) {
	record(t, "docker", "")
	for text, want := range map[string]string{"docker": "it needs --machines hack:NAME", "hack:test": ""} {
		m, err := ParseMachines(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.notPossible(t.Context(), actions[chaos.APIServer]); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestOutageOfTheAPIServerEnds(t *testing.T) {
	calls := record(t, "cluster", "")
	r := &Run{Machines: &localMachines{tool: "cluster", cluster: "test"}}
	done, err := r.disconnectAPIServer(t.Context())
	if err != nil || done.hold == 0 {
		t.Fatalf("got %+v, %v, want a fault that lasts", done, err)
	}
	if err := done.undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := calls(), "partition|control-plane|--name|test|\nheal|control-plane|--name|test|\n"; got != want {
		t.Errorf("got calls\n%s\nwant\n%s", got, want)
	}
}

func TestPacketsOfTheNodeOfAPodAreNotDropped(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: "application", ContainerID: "containerd://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}}}
	pod.Name, pod.UID = "ledger-2", "2"
	o := NewObserver(nil, nil, types.NamespacedName{})
	o.pods[pod.UID] = &observedPod{Pod: pod}
	r := &Run{observer: o, Machines: &localMachines{}}
	target := chaos.PodState{Agent: chaos.Agent{Pod: pod.Name, UID: string(pod.UID)}}
	if _, err := r.onMachine(t.Context(), chaos.Partition, target); err == nil || err.Error() != "pod ledger-2 uses the network of its node" {
		t.Errorf("got %v, want the fault to be refused", err)
	}
}

func TestFailedRuntimeIsReported(t *testing.T) {
	record(t, "podman", "echo first; echo no such container >&2; exit 3")
	m, err := ParseMachines("podman")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.inject(t.Context(), "kind-worker", &nodefault.Request{Action: nodefault.Isolate}); err == nil || err.Error() != "podman: exit status 3: no such container" {
		t.Errorf("got %v, want the last line of the runtime's output", err)
	}
}

// On the machine of a throwaway cluster, the script runs without a runtime.
func TestSignalWithoutProcessIsAnError(t *testing.T) {
	m, err := ParseMachines("hack:test")
	if err != nil {
		t.Fatal(err)
	}
	err = m.undo(t.Context(), "node-1", &nodefault.Request{Action: nodefault.Stop, Containers: []string{"no-cgroup-has-this-name-4711"}})
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
	if err != nil {
		t.Fatal(err)
	}
	drop := &nodefault.Request{Action: nodefault.Drop, Containers: []string{"abc"}, Addresses: []string{"10.0.0.1", "fd00::1"}, Percent: 30}
	if err := m.inject(t.Context(), "kind-worker", drop); err != nil {
		t.Error(err)
	}
	want := "exec|kind-worker|sh|-c|" + runNFT + "|sh|abc|add table inet conclave_chaos; " +
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
