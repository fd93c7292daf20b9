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
	// lossPercent is the part of the packets that a fault of kind loss drops, and packetDelay is the time for which kind delay delays
	// each. Both last disturbanceTime.
	lossPercent     = 30
	packetDelay     = 300 * time.Millisecond
	disturbanceTime = 5 * time.Second
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
	chaos.Partition: nodefault.Drop, chaos.Loss: nodefault.Drop, chaos.Delay: nodefault.Delay, chaos.APIServer: outage,
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
	if concernsPackets(fault) && pod.Spec.HostNetwork { // The rules would concern packets of others.
		return injection{}, &refusedError{"pod " + target.Pod + " uses the network of its node"}
	}
	if concernsPackets(fault) && len(fault.Addresses) == 0 {
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
	switch kind {
	case chaos.Loss, chaos.Delay:
		done.hold = disturbanceTime
	case chaos.Freeze:
		done.hold = r.Subject.linger()
	}
	return done, r.Machines.inject(ctx, target.Node, fault)
}

// machineFault returns the fault on the node of a pod.
func (r *Run) machineFault(kind string, pod *corev1.Pod) *nodefault.Request {
	fault := &nodefault.Request{Action: actions[kind], Containers: containers(pod, kind)}
	switch kind {
	case chaos.Node:
		fault.Addresses = hostAddresses(pod)
	case chaos.Partition, chaos.Loss, chaos.Delay:
		for _, p := range inspect(r.observer, func(_ *chaos.Record, s *chaos.State) []chaos.PodState { return s.Pods }) {
			if p.UID != string(pod.UID) && p.IP != "" {
				fault.Addresses = append(fault.Addresses, p.IP)
			}
		}
	}
	switch kind {
	case chaos.Loss:
		fault.Percent = lossPercent
	case chaos.Delay:
		fault.Delay = packetDelay
	}
	return fault
}

// concernsPackets reports whether a fault concerns packets from and to one pod.
func concernsPackets(f *nodefault.Request) bool {
	return f.Action == nodefault.Drop || f.Action == nodefault.Delay
}

// disconnectAPIServer disconnects the API server from all nodes. This command still reaches it, but not the agents.
func (r *Run) disconnectAPIServer(ctx context.Context) (injection, error) {
	done := injection{
		at: time.Now(), hold: outageTime,
		undo: func(ctx context.Context) error { return r.Machines.disconnectControlPlane(ctx, false) },
	}
	return done, r.Machines.disconnectControlPlane(ctx, true)
}

// undoOnMachine undoes a fault.
func (r *Run) undoOnMachine(ctx context.Context, target chaos.PodState, fault *nodefault.Request) error {
	if concernsPackets(fault) {
		pod := r.observer.pod(target.UID)
		if pod == nil {
			fault.Containers = nil
		} else if now := containers(pod, chaos.Partition); len(now) > 0 {
			fault.Containers = now // The former ones may have ended meanwhile.
		}
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
