package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Timeouts. Only a failing demo reaches them.
const (
	waitShort = 2 * time.Minute
	waitLong  = 5 * time.Minute
)

func (s *demo) startCluster(ctx context.Context) error { return s.cluster.start(ctx, s.out) }

func (s *demo) loadImages(ctx context.Context) error {
	for _, image := range images {
		if err := s.cluster.load(ctx, filepath.Join(s.top, imageFolder, filepath.Base(image.source)+".tar")); err != nil {
			return err
		}
		s.printf("%s", image.name)
	}
	return nil
}

func (s *demo) install(ctx context.Context) error {
	s.printf("$ kubectl apply --server-side -f dist/install.yaml")
	if err := run(s.cluster.kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(s.top, "dist", "install.yaml"))); err != nil {
		return err
	}
	if err := s.kubectlWait(ctx, "the operator to become available", "wait", "deployment/conclave-manager", "--namespace", operatorNamespace,
		"--for=condition=Available"); err != nil {
		return err
	}
	s.printf("the operator runs with two replicas")
	return nil
}

// applyGroup applies the lock service.
func (s *demo) applyGroup(ctx context.Context) error {
	if err := run(s.cluster.kubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found", "--timeout=5m")); err != nil {
		return err
	}
	if err := run(s.cluster.kubectl(ctx, "create", "namespace", namespace)); err != nil {
		return err
	}
	const manifest = "examples/lock-service/manifest.yaml"
	s.printf("$ kubectl apply -f " + manifest)
	if err := run(s.cluster.kubectl(ctx, "apply", "--namespace", namespace, "-f", filepath.Join(s.top, manifest))); err != nil {
		return err
	}
	s.watch(ctx)
	if err := s.awaitHealthy(ctx); err != nil {
		return err
	}
	return s.printLocks(ctx, 1)
}

// killProcess kills the agent, as a crash would. Kubelet restarts its container. When
// the process has been stable for a while, it leads again.
func (s *demo) killProcess(ctx context.Context) error {
	return s.injectFault(ctx, "kill -9", func(victim string) error { return s.cluster.killAgent(ctx, victim, s.nodeOf(victim)) },
		otherPods)
}

func (s *demo) deletePod(ctx context.Context) error {
	return s.injectFault(ctx, "kubectl delete pod --grace-period=0 --force", func(victim string) error {
		return run(s.cluster.kubectl(ctx, "delete", "pod", victim, "--namespace", namespace, "--grace-period=0", "--force"))
	}, otherPods)
}

// otherPods reports whether a pod survives the loss of the victim's pod.
func otherPods(victim, other string) bool { return other != victim }

// partitionNode isolates the coordinator's node. The coordinator keeps running but
// cannot communicate.
func (s *demo) partitionNode(ctx context.Context) (err error) {
	var node string
	defer func() {
		if node == "" {
			return
		}
		s.printf("the node's network is restored")
		// Restore the network even if the demo was interrupted.
		err = errors.Join(err, s.cluster.heal(context.WithoutCancel(ctx), node))
		if err == nil {
			err = s.awaitHealthy(ctx)
		}
	}()
	return s.injectFaultOnce(ctx, "isolate its node", func(victim string) error {
		on := s.nodeOf(victim)
		if problem := s.sharedNode(s.current()); problem != "" {
			return errors.New(problem)
		}
		node = on
		return s.cluster.partition(ctx, node)
	}, func(victim, other string) bool { return s.nodeOf(other) != s.nodeOf(victim) })
}

// injectFault takes the coordinator away and waits until all members are up again.
func (s *demo) injectFault(ctx context.Context, fault string, inject func(victim string) error, survives func(victim, other string) bool) error {
	if err := s.injectFaultOnce(ctx, fault, inject, survives); err != nil {
		return err
	}
	return s.awaitHealthy(ctx)
}

// injectFaultOnce takes the coordinator away. The remaining process with the highest
// priority must become the next coordinator.
func (s *demo) injectFaultOnce(ctx context.Context, fault string, inject func(victim string) error, survives func(victim, other string) bool) error {
	if err := s.updateNodes(ctx); err != nil {
		return err
	}
	before, err := s.awaitLocks(ctx, 0)
	if err != nil {
		return err
	}
	now := s.current()
	victim := coordinatorOf(now).Pod
	successor := ""
	for i := range now.Status.Processes { // highest priority first
		if p := &now.Status.Processes[i]; survives(victim, p.Pod) && p.Priority > 0 {
			successor = p.Pod
			break
		}
	}
	s.printf("%s leads on %s: %s", victim, s.nodeOf(victim), fault)
	took, next, err := s.failover(ctx, inject)
	if err != nil {
		return err
	}
	if took.next != successor {
		return fmt.Errorf("%s leads, want %s", took.next, successor)
	}
	s.printf("%s", took)
	s.printStatus(next)
	if !survives(victim, ledgerPod) {
		return nil // Nobody can use a lock at present.
	}
	return s.printLocks(ctx, before.tenures+1)
}

// failover is a change of the coordinator.
type failover struct {
	next string
	// gap is the time without a coordinator, as the agents measured it. If the group's status doesn't contain it, it is the
	// time since before the fault, which includes the command that injects it.
	gap time.Duration
	// status is the time from the election until the status showed it.
	status time.Duration
}

func (f failover) String() string {
	return fmt.Sprintf("%s leads after %s; the status shows it %s later", f.next, v1.FormatGap(f.gap), v1.FormatGap(f.status))
}

// failover takes the coordinator away and waits until the status shows the next one.
func (s *demo) failover(ctx context.Context, inject func(victim string) error) (failover, *v1.ElectionGroup, error) {
	before := coordinatorOf(s.current())
	if before.Pod == "" {
		return failover{}, nil, errors.New("there is no coordinator at present")
	}
	injected := time.Now()
	if err := inject(before.Pod); err != nil {
		return failover{}, nil, err
	}
	now, observed, err := s.awaitStatus(ctx, "another pod to lead", waitShort, func(g *v1.ElectionGroup) bool {
		next := coordinatorOf(g)
		return next.Term > before.Term && next.Pod != before.Pod
	})
	if err != nil {
		return failover{}, nil, err
	}
	next := coordinatorOf(now)
	return failover{next.Pod, gapOf(now, next.ElectedAt.Sub(injected)), observed.Sub(next.ElectedAt.Time)}, now, nil
}

// awaitHealthy waits until the member with the highest priority leads and all others
// follow.
func (s *demo) awaitHealthy(ctx context.Context) error {
	now, _, err := s.awaitStatus(ctx, "all members to be up and the highest priority to lead", waitLong, healthy)
	if err != nil {
		return err
	}
	if err := s.updateNodes(ctx); err != nil {
		return err
	}
	s.printf("all members are up, %s leads", coordinatorOf(now).Pod)
	s.printStatus(now)
	if problem := s.sharedNode(now); problem != "" {
		s.printf("warning: %s", problem)
	}
	return nil
}

// sharedNode returns why no other pod could lead if the coordinator's node were isolated, or "".
func (s *demo) sharedNode(g *v1.ElectionGroup) string {
	node, share := s.nodeOf(coordinatorOf(g).Pod), 0
	for i := range g.Status.Processes {
		if s.nodeOf(g.Status.Processes[i].Pod) == node {
			share++
		}
	}
	all := len(g.Status.Processes)
	if all-share > all/2 {
		return ""
	}
	return fmt.Sprintf("%d of %d members run on the coordinator's node %s, and the others are no majority: the cluster should have %d nodes for pods",
		share, all, node, nodes)
}

// healthy reports whether the member with the highest priority leads and all others follow.
func healthy(g *v1.ElectionGroup) bool {
	for i := range g.Status.Processes {
		want := v1.ProcessNormal
		if i == 0 {
			want = v1.ProcessCoordinator
		}
		if g.Status.Processes[i].Status != want {
			return false
		}
	}
	return len(g.Status.Processes) > 0 && coordinatorOf(g).Pod == g.Status.Processes[0].Pod
}

// kubectlWait runs kubectl wait.
func (s *demo) kubectlWait(ctx context.Context, condition string, arguments ...string) error {
	if err := run(s.cluster.kubectl(ctx, append(arguments, "--timeout", waitShort.String())...)); err != nil {
		return fmt.Errorf("timed out waiting for %s: %w", condition, err)
	}
	return nil
}
