package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
)

// demo prints the progress and tracks the status of the group.
type demo struct {
	out     io.Writer
	top     string
	cluster cluster
	start   time.Time
	// background has what ends with the demo.
	background sync.WaitGroup

	// log describes the changes that awaitStatus has printed.
	log describe.ChangeLog

	mu         sync.Mutex
	nodes      map[string]string // The node of each pod. The map isn't changed, only replaced.
	now        *v1.ElectionGroup // The group, nil until it was seen. It isn't changed, only replaced.
	observedAt time.Time
	changed    chan struct{} // closed and replaced when now changes
	ended      error
}

// coordinatorOf returns the coordinator of a group. The name of its pod is empty if there is none.
func coordinatorOf(g *v1.ElectionGroup) v1.Coordinator {
	if g == nil || g.Status.Coordinator == nil {
		return v1.Coordinator{}
	}
	return *g.Status.Coordinator
}

// gapOf returns the time without a coordinator before the present one, or a default if the status doesn't contain it.
func gapOf(g *v1.ElectionGroup, unknown time.Duration) time.Duration {
	for i := range g.Status.History {
		tenure := &g.Status.History[i]
		if gap, known := tenure.Gap(); known && tenure.Term == coordinatorOf(g).Term {
			return gap
		}
	}
	return unknown
}

func (s *demo) heading(title string) {
	fmt.Fprintf(s.out, "\n# %s   (%s)\n", title, time.Since(s.start).Round(time.Second))
}

func (s *demo) printf(format string, values ...any) { fmt.Fprintf(s.out, format+"\n", values...) }

// watch watches the group until ctx ends.
func (s *demo) watch(ctx context.Context) {
	s.changed = make(chan struct{})
	s.background.Go(func() {
		for {
			if err := s.watchOnce(ctx); err != nil {
				s.update(func() { s.ended = err })
				return
			}
		}
	})
}

// update changes the state of the watch.
func (s *demo) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// watchOnce watches the group until the API server ends the watch, which it does after a while. It returns an error if it
// hasn't seen the group.
func (s *demo) watchOnce(ctx context.Context) error {
	command := s.cluster.kubectl(ctx, "get", "electiongroup", group, "--namespace", namespace, "--watch", "-o", "json")
	var problem strings.Builder
	command.Stderr = &problem
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	seen := false
	for decoder := json.NewDecoder(stdout); ; seen = true {
		now := &v1.ElectionGroup{}
		if err := decoder.Decode(now); err != nil {
			break
		}
		s.update(func() { s.now, s.observedAt = now, time.Now() })
	}
	if err := command.Wait(); !seen {
		return fmt.Errorf("cannot watch the group: %w: %s", err, strings.TrimSpace(problem.String()))
	}
	return nil
}

func (s *demo) current() *v1.ElectionGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// awaitStatus waits until the group meets a condition, and returns the time at which it was observed. Meanwhile it prints one line
// for each change.
func (s *demo) awaitStatus(
	ctx context.Context, condition string, limit time.Duration, wanted func(*v1.ElectionGroup) bool,
) (*v1.ElectionGroup, time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("timed out after %s waiting for %s", limit, condition))
	defer cancel()
	for {
		s.mu.Lock()
		now, observed, changed, ended := s.now, s.observedAt, s.changed, s.ended
		s.mu.Unlock()
		if now != nil {
			for _, change := range s.log.Append(now, time.Now()) {
				s.printf("  %s", change)
			}
		}
		if ended != nil {
			return now, observed, ended
		}
		if now != nil && wanted(now) {
			return now, observed, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.printStatus(now)
			return now, observed, context.Cause(ctx)
		}
	}
}

// printStatus prints what kubectl conclave status would print.
func (s *demo) printStatus(g *v1.ElectionGroup) {
	if g != nil {
		describe.Status(s.out, g, time.Now())
	}
}

// updateNodes queries the node of each pod.
func (s *demo) updateNodes(ctx context.Context) error {
	output, err := s.cluster.kubectl(ctx, "get", "pods", "--namespace", namespace, "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("cannot list the pods: %w", err)
	}
	var pods struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
		}
	}
	if err := json.Unmarshal(output, &pods); err != nil {
		return fmt.Errorf("cannot list the pods: %w", err)
	}
	nodes := map[string]string{}
	for _, pod := range pods.Items {
		nodes[pod.Metadata.Name] = pod.Spec.NodeName
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = nodes
	return nil
}

func (s *demo) nodeOf(pod string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[pod]
}

func (s *demo) printNextSteps() {
	s.heading("The cluster keeps running")
	if _, sudo := os.LookupEnv("SUDO_UID"); sudo {
		s.printf("sudo -s                                # the cluster belongs to root")
	}
	s.printf("%s", s.cluster.hint())
	kubectl := "kubectl"
	if _, err := exec.LookPath("kubectl"); err != nil {
		kubectl = "bin/cluster kubectl --name " + clusterName + " --" // kind needs kubectl.
	}
	s.printf("%s get electiongroups --all-namespaces", kubectl)
	s.printf("%s exec --namespace %s %s -- %s", kubectl, namespace, ledgerPod, checkCommand)
	s.printf("bin/kubectl-conclave watch %s --namespace %s   # meanwhile, in another terminal:", group, namespace)
	s.printf("%s delete pod --namespace %s --selector %s=%s", kubectl, namespace, v1.RoleLabel(group), v1.RoleCoordinator)
	s.printf("%-38s # removes the demo", makeAgain("demo-down"))
}

// makeAgain returns the command that makes a target with the cluster of this demo.
func makeAgain(target string) string {
	if os.Getenv("CLUSTER") == "kind" {
		return "CLUSTER=kind make " + target
	}
	return "make " + target
}
