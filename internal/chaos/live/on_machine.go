package live

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/kindnodes"
)

const (
	// lossPercent is the part of the packets that a fault of kind loss drops, and packetDelay is the time for which kind
	// delay delays each. Both last disturbanceTime.
	lossPercent     = 30
	packetDelay     = 300 * time.Millisecond
	disturbanceTime = 5 * time.Second
	// outageTime is how long the API server is disconnected. It is shorter than the time after which nodes aren't ready
	// any more.
	outageTime = 20 * time.Second
)

// Machines injects the faults that need the machines of the cluster.
type Machines interface {
	// notPossible returns why faults of a kind aren't possible on a node, or "".
	notPossible(ctx context.Context, kind, node string) string
	inject(ctx context.Context, f *machineFault) error
	// undo undoes a fault that lasts. Without containers, the pod is gone, and its network with it.
	undo(ctx context.Context, f *machineFault) error
}

// machineFault is a fault on a node.
type machineFault struct {
	kind, node string
	// containers are the IDs of those that the fault affects, and addresses those of the pods from which it disconnects.
	containers, addresses []string
}

// kindMachines are the nodes of a kind cluster.
type kindMachines struct{ nodes kindnodes.Nodes }

// ParseMachines parses docker, podman or nerdctl.
func ParseMachines(text string) (Machines, error) {
	if !slices.Contains(kindnodes.Runtimes, text) {
		return nil, fmt.Errorf("must be %s, for a kind cluster, got %q", strings.Join(kindnodes.Runtimes, ", "), text)
	}
	if _, err := exec.LookPath(text); err != nil {
		return nil, fmt.Errorf("%s isn't in PATH", text)
	}
	return &kindMachines{kindnodes.Nodes{Runtime: text}}, nil
}

func (m *kindMachines) notPossible(ctx context.Context, kind, node string) string {
	if kind == chaos.Delay {
		return m.nodes.NotDelayed(ctx, node)
	}
	return ""
}

func (m *kindMachines) inject(ctx context.Context, f *machineFault) error {
	switch f.kind {
	case chaos.KillAgent, chaos.KillApp:
		return m.nodes.Signal(ctx, f.node, "KILL", f.containers...)
	case chaos.Freeze:
		return m.nodes.Signal(ctx, f.node, "STOP", f.containers...)
	case chaos.Node:
		return m.nodes.Pause(ctx, f.node)
	case chaos.Partition:
		return m.nodes.Drop(ctx, f.network(), kindnodes.Packets{Addresses: f.addresses})
	case chaos.Loss:
		return m.nodes.Drop(ctx, f.network(), kindnodes.Packets{Addresses: f.addresses, Percent: lossPercent})
	case chaos.Delay:
		return m.nodes.Delay(ctx, f.network(), packetDelay)
	}
	return m.onControlPlane(ctx, f.node, func(node kindnodes.Network) error {
		return m.nodes.Drop(ctx, node, kindnodes.Packets{})
	})
}

func (m *kindMachines) undo(ctx context.Context, f *machineFault) error {
	switch f.kind {
	case chaos.Freeze:
		return m.nodes.Signal(ctx, f.node, "CONT", f.containers...)
	case chaos.Node:
		return m.nodes.Unpause(ctx, f.node)
	case chaos.APIServer:
		return m.onControlPlane(ctx, f.node, func(node kindnodes.Network) error { return m.nodes.Heal(ctx, node) })
	}
	switch {
	case len(f.containers) == 0:
		return nil
	case f.kind == chaos.Delay:
		return m.nodes.EndDelay(ctx, f.network())
	}
	return m.nodes.Heal(ctx, f.network())
}

func (f *machineFault) network() kindnodes.Network {
	return kindnodes.Network{Node: f.node, Container: f.containers[0]}
}

// onControlPlane calls a function for each node of the control plane of a node's cluster.
func (m *kindMachines) onControlPlane(ctx context.Context, node string, call func(kindnodes.Network) error) error {
	nodes, err := m.nodes.ControlPlane(ctx, node)
	for _, name := range nodes {
		err = errors.Join(err, call(kindnodes.Network{Node: name}))
	}
	return err
}

// onMachine injects a fault that needs the machines of the cluster.
func (r *Run) onMachine(ctx context.Context, kind string, target chaos.PodState) (injection, error) {
	pod := r.observer.pod(target.UID)
	if pod == nil {
		return injection{}, &refusedError{"pod " + target.Pod + " is gone"}
	}
	fault := &machineFault{kind: kind, node: target.Node, containers: containers(pod, kind)}
	if concernsPackets(kind) {
		var err error
		if fault.addresses, err = r.otherAddresses(ctx, target); err != nil {
			return injection{}, err
		}
	}
	if len(fault.containers) == 0 {
		return injection{}, &refusedError{"no container of pod " + target.Pod + " runs"}
	}
	if concernsPackets(kind) && pod.Spec.HostNetwork { // The rules would concern packets of others.
		return injection{}, &refusedError{"pod " + target.Pod + " uses the network of its node"}
	}
	if concernsPackets(kind) && len(fault.addresses) == 0 {
		return injection{}, &refusedError{"no other pod has an address"}
	}
	done := injection{at: time.Now()}
	switch kind {
	case chaos.KillAgent, chaos.KillApp:
		done.recovered = func(context.Context) bool {
			now := r.observer.pod(target.UID)
			return now == nil || !slices.ContainsFunc(containers(now, kind), func(id string) bool {
				return slices.Contains(fault.containers, id)
			}) && len(containers(now, kind)) >= len(fault.containers)
		}
	default:
		done.undo = func(ctx context.Context) error { return r.undoOnMachine(ctx, target, fault) }
	}
	switch kind {
	case chaos.Loss, chaos.Delay:
		done.hold = disturbanceTime
	case chaos.Freeze:
		done.hold = r.Subject.linger()
	}
	return done, r.Machines.inject(ctx, fault)
}

// otherAddresses returns the addresses of the other pods, and of the group's witness.
func (r *Run) otherAddresses(ctx context.Context, target chaos.PodState) (all []string, err error) {
	for _, p := range r.pods() {
		if p.UID != target.UID && p.IP != "" {
			all = append(all, p.IP)
		}
	}
	rows := inspect(r.observer, func(_ *chaos.Record, s *chaos.State) []chaos.Row { return s.Rows })
	for _, row := range rows {
		if !row.Witness {
			continue
		}
		var pod corev1.Pod
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.OperatorNamespace, Name: row.Pod}, &pod); err != nil {
			return nil, &refusedError{"the address of the witness isn't known: " + err.Error()}
		}
		all = append(all, pod.Status.PodIP)
	}
	return all, nil
}

func (r *Run) pods() []chaos.PodState {
	return inspect(r.observer, func(_ *chaos.Record, s *chaos.State) []chaos.PodState { return s.Pods })
}

// concernsPackets reports whether a kind of fault concerns packets from and to one pod.
func concernsPackets(kind string) bool {
	return kind == chaos.Partition || kind == chaos.Loss || kind == chaos.Delay
}

// disconnectAPIServer disconnects the nodes of the control plane from all others, and from this command.
func (r *Run) disconnectAPIServer(ctx context.Context) (injection, error) {
	pods := r.pods()
	if len(pods) == 0 {
		return injection{}, &refusedError{"no pod runs"}
	}
	fault := &machineFault{kind: chaos.APIServer, node: pods[0].Node}
	done := injection{
		at: time.Now(), hold: outageTime, undo: func(ctx context.Context) error { return r.Machines.undo(ctx, fault) },
	}
	return done, r.Machines.inject(ctx, fault)
}

// undoOnMachine undoes a fault.
func (r *Run) undoOnMachine(ctx context.Context, target chaos.PodState, fault *machineFault) error {
	if concernsPackets(fault.kind) {
		pod := r.observer.pod(target.UID)
		if pod == nil {
			fault.containers = nil
		} else if now := containers(pod, fault.kind); len(now) > 0 {
			fault.containers = now // The former ones may have ended meanwhile.
		}
	}
	return r.Machines.undo(ctx, fault)
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
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	return slices.DeleteFunc(all, func(s corev1.ContainerStatus) bool {
		isAgent := s.Name == v1.AgentContainer
		return s.State.Running == nil || kind == chaos.KillAgent && !isAgent || kind == chaos.KillApp && isAgent
	})
}
