package live

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
)

// Machines controls the machines of a cluster on this computer: the containers of a kind cluster, or the nodes of hack/cluster.
type Machines struct {
	// runtime is the container runtime of a kind cluster.
	runtime string
	// tool and cluster are the program and the cluster's name of hack/cluster.
	tool, cluster string
}

// runtimes are the container runtimes that kind supports.
var runtimes = []string{"docker", "podman", "nerdctl"}

// ParseMachines parses docker, podman or nerdctl for a kind cluster, or hack:NAME for a throwaway cluster.
func ParseMachines(text string) (*Machines, error) {
	if slices.Contains(runtimes, text) {
		if _, err := exec.LookPath(text); err != nil {
			return nil, fmt.Errorf("%s isn't in PATH", text)
		}
		return &Machines{runtime: text}, nil
	}
	if name, ok := strings.CutPrefix(text, "hack:"); ok && name != "" {
		return &Machines{tool: filepath.Join("bin", "cluster"), cluster: name}, nil
	}
	return nil, fmt.Errorf("must be %s for a kind cluster, or hack:NAME for a cluster of hack/cluster, got %q", strings.Join(runtimes, ", "), text)
}

// sendSignal sends a signal to all processes of containers, which it finds by their IDs in the names of cgroups. One grep reads all
// files: one for each process would delay the fault by a noticeable part of a failover.
const sendSignal = `signal=$1; shift; found=1
for id; do set -- "$@" -e "$id"; shift; done
for file in $(grep -l "$@" /proc/[0-9]*/cgroup 2>/dev/null); do
	process=${file#/proc/}; if kill -s $signal ${process%/cgroup} 2>/dev/null; then found=0; fi
done
if [ $found != 0 ]; then echo "no process of the containers runs" >&2; fi; exit $found`

func (m *Machines) signal(ctx context.Context, node, signal string, containers []string) error {
	return m.shell(ctx, node, sendSignal, append([]string{signal}, containers...)...)
}

// shell runs a shell script on a node.
func (m *Machines) shell(ctx context.Context, node, script string, arguments ...string) error {
	command := append([]string{"sh", "-c", script, "sh"}, arguments...)
	if m.runtime != "" { // The processes of hack/cluster are processes of this machine.
		command = append([]string{m.runtime, "exec", node}, command...)
	}
	return execute(ctx, command...)
}

// stop stops a machine, as seen by the others, and start lets it continue.
func (m *Machines) stop(ctx context.Context, node string) error {
	if m.runtime != "" {
		return execute(ctx, m.runtime, "pause", node)
	}
	return execute(ctx, m.tool, "partition", node, "--name", m.cluster)
}

func (m *Machines) start(ctx context.Context, node string) error {
	if m.runtime != "" {
		return execute(ctx, m.runtime, "unpause", node)
	}
	return execute(ctx, m.tool, "heal", node, "--name", m.cluster)
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

// containers returns the IDs of a pod's containers: of the agent, of all others, or of all.
func containers(pod *corev1.Pod, kind string) (ids []string) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		isAgent := s.Name == v1.AgentContainer
		if s.State.Running == nil || kind == chaos.KillAgent && !isAgent || kind == chaos.KillApp && isAgent {
			continue
		}
		_, id, _ := strings.Cut(s.ContainerID, "://")
		ids = append(ids, id)
	}
	return ids
}

// onMachine injects a fault that needs the machines of the cluster.
func (r *Run) onMachine(ctx context.Context, kind string, target chaos.PodState) (injection, error) {
	if kind == chaos.Node {
		done := injection{at: time.Now(), undo: func(ctx context.Context) error { return r.Machines.start(ctx, target.Node) }}
		return done, r.Machines.stop(ctx, target.Node)
	}
	pod := r.observer.pod(target.UID)
	if pod == nil {
		return injection{}, &refusedError{"pod " + target.Pod + " is gone"}
	}
	if kind == chaos.Partition || kind == chaos.Loss {
		return r.cutOff(ctx, kind, target, pod)
	}
	ids := containers(pod, kind)
	if len(ids) == 0 {
		return injection{}, &refusedError{"no container of pod " + target.Pod + " runs"}
	}
	if kind == chaos.Freeze {
		done := injection{at: time.Now(), undo: func(ctx context.Context) error { return r.Machines.signal(ctx, target.Node, "CONT", ids) }}
		return done, r.Machines.signal(ctx, target.Node, "STOP", ids)
	}
	done := injection{at: time.Now(), recovered: func(context.Context) bool {
		now := r.observer.pod(target.UID)
		return now == nil || !slices.ContainsFunc(containers(now, kind), func(id string) bool { return slices.Contains(ids, id) }) &&
			len(containers(now, kind)) >= len(ids)
	}}
	return done, r.Machines.signal(ctx, target.Node, "KILL", ids)
}
