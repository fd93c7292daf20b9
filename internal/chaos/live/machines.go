package live

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
)

// Machines injects the faults that need the machines of the cluster.
type Machines interface {
	// Start makes ready what faults on the nodes of a subject's pods need, and Stop ends that and all faults.
	Start(ctx context.Context, subject Subject) error
	Stop(ctx context.Context) error
	// notPossible returns why an action isn't possible on this cluster or for this user, or "".
	notPossible(ctx context.Context, action string) (string, error)
	// prepare does what takes time before a fault on the node of a pod, so that the measurements don't include it.
	prepare(ctx context.Context, pod *corev1.Pod) error
	// inject injects a fault on a node.
	inject(ctx context.Context, node string, fault *nodefault.Request) error
	// undo undoes a fault that lasts. If the fault concerns packets and has no containers, the pod is gone, and its network with it.
	undo(ctx context.Context, node string, fault *nodefault.Request) error
	// disconnectControlPlane disconnects the machine of the API server, or connects it again.
	disconnectControlPlane(ctx context.Context, disconnect bool) error
}

// localMachines are the machines of a cluster on this computer: the containers of a kind cluster, or the nodes of hack/cluster.
type localMachines struct {
	// runtime is the container runtime of a kind cluster.
	runtime string
	// tool and cluster are the program and the cluster's name of hack/cluster.
	tool, cluster string
	// node is this computer, on which the processes of a cluster of hack/cluster run, and undoDelay ends the delay of packets.
	node      nodefault.Node
	undoDelay func() error
}

// runtimes are the container runtimes that kind supports.
var runtimes = []string{"docker", "podman", "nerdctl"}

// ParseMachines parses docker, podman or nerdctl for a kind cluster, or hack:NAME for a throwaway cluster.
func ParseMachines(text string) (Machines, error) {
	if slices.Contains(runtimes, text) {
		if _, err := exec.LookPath(text); err != nil {
			return nil, fmt.Errorf("%s isn't in PATH", text)
		}
		return &localMachines{runtime: text}, nil
	}
	if name, ok := strings.CutPrefix(text, "hack:"); ok && name != "" {
		return &localMachines{tool: filepath.Join("bin", "cluster"), cluster: name, node: nodefault.ThisNode{}}, nil
	}
	return nil, fmt.Errorf("must be pod for any cluster, %s for a kind cluster, or hack:NAME for a cluster of hack/cluster, got %q",
		strings.Join(runtimes, ", "), text)
}

// sendSignal sends a signal to all processes of containers, which it finds by their IDs in the names of cgroups. One grep reads all
// files: one for each process would delay the fault by a noticeable part of a failover.
const sendSignal = `signal=$1; shift; found=1
for id; do set -- "$@" -e "$id"; shift; done
for file in $(grep -l "$@" /proc/[0-9]*/cgroup 2>/dev/null); do
	process=${file#/proc/}; if kill -s $signal ${process%/cgroup} 2>/dev/null; then found=0; fi
done
if [ $found != 0 ]; then echo "no process of the containers runs" >&2; fi; exit $found`

func (m *localMachines) signal(ctx context.Context, node, signal string, containers []string) error {
	if err := nodefault.CheckContainers(containers); err != nil {
		return err
	}
	return m.shell(ctx, node, sendSignal, append([]string{signal}, containers...)...)
}

// shell runs a shell script on a node.
func (m *localMachines) shell(ctx context.Context, node, script string, arguments ...string) error {
	command := append([]string{"sh", "-c", script, "sh"}, arguments...)
	if m.runtime != "" { // The processes of hack/cluster are processes of this machine.
		command = append([]string{m.runtime, "exec", node}, command...)
	}
	return execute(ctx, command...)
}

// Start does nothing.
func (*localMachines) Start(context.Context, Subject) error { return nil }

// Stop does nothing.
func (*localMachines) Stop(context.Context) error { return nil }

func (m *localMachines) notPossible(_ context.Context, action string) (string, error) {
	switch {
	case action == outage && m.runtime != "":
		return onlyHack, nil
	case action == nodefault.Delay && m.runtime != "":
		return "it needs --machines pod", nil // There is no program that delays packets.
	case action == nodefault.Delay:
		return m.node.Check(&nodefault.Request{})[action], nil
	}
	return "", nil
}

func (*localMachines) prepare(context.Context, *corev1.Pod) error { return nil }

func (m *localMachines) inject(ctx context.Context, node string, f *nodefault.Request) error {
	switch f.Action {
	case nodefault.Kill:
		return m.signal(ctx, node, "KILL", f.Containers)
	case nodefault.Stop:
		return m.signal(ctx, node, "STOP", f.Containers)
	case nodefault.Drop:
		return m.filter(ctx, node, f.Containers[0], dropRules(f.Addresses, f.Percent))
	case nodefault.Delay:
		undo, err := m.node.Inject(f)
		m.undoDelay = undo
		return err
	}
	if m.runtime != "" {
		return execute(ctx, m.runtime, "pause", node)
	}
	return execute(ctx, m.tool, "partition", node, "--name", m.cluster)
}

func (m *localMachines) undo(ctx context.Context, node string, f *nodefault.Request) error {
	switch f.Action {
	case nodefault.Stop:
		return m.signal(ctx, node, "CONT", f.Containers)
	case nodefault.Drop:
		if len(f.Containers) == 0 {
			return nil
		}
		// Adding it makes this succeed also if the fault was never injected.
		return m.filter(ctx, node, f.Containers[0], "add table "+table+"; delete table "+table)
	case nodefault.Delay:
		undo := m.undoDelay
		m.undoDelay = nil
		if undo != nil {
			return undo()
		}
		return nil
	}
	if m.runtime != "" {
		return execute(ctx, m.runtime, "unpause", node)
	}
	return execute(ctx, m.tool, "heal", node, "--name", m.cluster)
}

func (m *localMachines) disconnectControlPlane(ctx context.Context, disconnect bool) error {
	verb := "heal"
	if disconnect {
		verb = "partition"
	}
	return execute(ctx, m.tool, verb, "control-plane", "--name", m.cluster)
}

// execute runs a command. The error has the last line of its output.
func execute(ctx context.Context, command ...string) error {
	output, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput() //nolint:gosec // the user names the cluster
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return fmt.Errorf("%s: %w: %s", filepath.Base(command[0]), err, lines[len(lines)-1])
}

// containers returns the IDs of the containers that a fault of this kind affects.
func containers(pod *corev1.Pod, kind string) (ids []string) {
	for _, s := range affectedContainers(pod, kind) {
		_, id, _ := strings.Cut(s.ContainerID, "://")
		ids = append(ids, id)
	}
	return ids
}

// affectedContainers returns a pod's running containers: the agent, all others, or all.
func affectedContainers(pod *corev1.Pod, kind string) []corev1.ContainerStatus {
	return slices.DeleteFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		isAgent := s.Name == v1.AgentContainer
		return s.State.Running == nil || kind == chaos.KillAgent && !isAgent || kind == chaos.KillApp && isAgent
	})
}
