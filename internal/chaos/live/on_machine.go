package live

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
)

const (
	// lossPercent is the part of the packets that a fault of kind loss drops, and lossTime is how long.
	lossPercent = 30
	lossTime    = 5 * time.Second
	// outageTime is how long the API server is disconnected. It is shorter than the time after which nodes aren't ready any more.
	outageTime = 20 * time.Second
)

// outage is the action of kind apiserver, which isn't one of package nodefault: it concerns no node of a member.
const (
	outage   = "outage"
	onlyHack = "it needs --machines hack:NAME"
)

// actions are the faults on a node by which kinds are injected.
var actions = map[string]string{
	chaos.KillAgent: nodefault.Kill, chaos.KillApp: nodefault.Kill, chaos.Freeze: nodefault.Stop, chaos.Node: nodefault.Isolate,
	chaos.Partition: nodefault.Drop, chaos.Loss: nodefault.Drop, chaos.APIServer: outage,
}

// prepare does what takes time before a fault that needs the machines.
func (r *Run) prepare(ctx context.Context, kind *chaos.Kind, targets []chaos.PodState) error {
	if kind.Access != chaos.ByMachine || len(targets) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	if pod := r.observer.pod(targets[0].UID); pod != nil {
		return r.Machines.prepare(ctx, pod)
	}
	return nil // The fault will be refused.
}

// onMachine injects a fault that needs the machines of the cluster.
func (r *Run) onMachine(ctx context.Context, kind string, target chaos.PodState) (injection, error) {
	pod := r.observer.pod(target.UID)
	if pod == nil {
		return injection{}, &refusedError{"pod " + target.Pod + " is gone"}
	}
	fault := r.machineFault(kind, pod)
	if len(fault.Containers) == 0 {
		return injection{}, &refusedError{"no container of pod " + target.Pod + " runs"}
	}
	if fault.Action == nodefault.Drop && pod.Spec.HostNetwork { // The rules would drop packets of others.
		return injection{}, &refusedError{"pod " + target.Pod + " uses the network of its node"}
	}
	if fault.Action == nodefault.Drop && len(fault.Addresses) == 0 {
		return injection{}, &refusedError{"no other pod has an address"}
	}
	done := injection{at: time.Now()}
	switch fault.Action {
	case nodefault.Kill:
		done.recovered = func(context.Context) bool {
			now := r.observer.pod(target.UID)
			return now == nil || !slices.ContainsFunc(containers(now, kind), func(id string) bool { return slices.Contains(fault.Containers, id) }) &&
				len(containers(now, kind)) >= len(fault.Containers)
		}
	default:
		done.undo = func(ctx context.Context) error { return r.undoOnMachine(ctx, target, fault) }
	}
	if kind == chaos.Loss {
		done.hold = lossTime
	}
	return done, r.Machines.inject(ctx, target.Node, fault)
}

// machineFault returns the fault on the node of a pod.
func (r *Run) machineFault(kind string, pod *corev1.Pod) *nodefault.Request {
	fault := &nodefault.Request{Action: actions[kind], Containers: containers(pod, kind)}
	switch kind {
	case chaos.Node:
		fault.Addresses = hostAddresses(pod)
	case chaos.Partition, chaos.Loss:
		for _, p := range inspect(r.observer, func(_ *chaos.Record, s *chaos.State) []chaos.PodState { return s.Pods }) {
			if p.UID != string(pod.UID) && p.IP != "" {
				fault.Addresses = append(fault.Addresses, p.IP)
			}
		}
	}
	if kind == chaos.Loss {
		fault.Percent = lossPercent
	}
	return fault
}

// disconnectAPIServer disconnects the API server from all nodes. This command still reaches it, but not the agents.
func (r *Run) disconnectAPIServer(ctx context.Context) (injection, error) {
	done := injection{
		at: time.Now(), hold: outageTime,
		undo: func(ctx context.Context) error { return r.Machines.disconnectControlPlane(ctx, false) },
	}
	return done, r.Machines.disconnectControlPlane(ctx, true)
}

// undoOnMachine undoes a fault. If its pod is gone, so are its processes and its network.
func (r *Run) undoOnMachine(ctx context.Context, target chaos.PodState, fault *nodefault.Request) error {
	if fault.Action == nodefault.Drop {
		pod := r.observer.pod(target.UID)
		if pod == nil {
			return nil
		}
		fault.Containers = containers(pod, chaos.Partition) // The former ones may have ended meanwhile.
	}
	return r.Machines.undo(ctx, target.Node, fault)
}

// hostAddresses returns the addresses of a pod's node.
func hostAddresses(pod *corev1.Pod) (all []string) {
	for _, a := range pod.Status.HostIPs {
		all = append(all, a.IP)
	}
	return all
}
