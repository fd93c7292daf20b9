package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// fakeCluster has a node with two pods, one with three, and one with the ledger. A test
// sets the group's status after a fault and after it is healed.
type fakeCluster struct {
	cluster

	demo                  *demo
	afterFault, afterHeal *v1.ElectionGroup
	tenures               int    // Coordinators that have granted locks.
	violation             string // What the ledger finds after a fault.
	healed                string
	crowded               bool // Node n-2 has three pods, and n-1 two.
}

func (s *fakeCluster) kubectl(ctx context.Context, arguments ...string) *exec.Cmd {
	if arguments[0] == "exec" {
		return exec.CommandContext(ctx, "echo", s.verdict())
	}
	nodes := map[string]string{ledgerPod: "n-3", "p-4": "n-2", "p-3": "n-2", "p-2": "n-1", "p-1": "n-1", "p-0": "n-1"}
	if s.crowded {
		nodes["p-2"] = "n-2"
	}
	var pods []string
	for pod, node := range nodes {
		pods = append(pods, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"nodeName":%q}}`, pod, node))
	}
	return exec.CommandContext(ctx, "echo", `{"items":[`+strings.Join(pods, ",")+`]}`)
}

func (s *fakeCluster) killAgent(context.Context, string, string) error {
	return s.setStatus(s.afterFault)
}

func (s *fakeCluster) partition(context.Context, string) error { return s.setStatus(s.afterFault) }

func (s *fakeCluster) heal(_ context.Context, node string) error {
	s.healed = node
	return s.setStatus(s.afterHeal)
}

func (s *fakeCluster) setStatus(g *v1.ElectionGroup) error {
	s.demo.update(func() { s.demo.now = g })
	s.tenures++
	return nil
}

func (s *fakeCluster) verdict() string {
	if s.violation != "" && s.tenures > 0 {
		return "violated: " + s.violation
	}
	return fmt.Sprintf("holds: with %d tokens", s.tenures)
}

var errWatch = errors.New("cannot watch the group")

// statusWithLeader is the group while a pod leads and the others follow.
func statusWithLeader(pod string, term int64) *v1.ElectionGroup {
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: group}}
	g.Status.Coordinator = &v1.Coordinator{Pod: pod, Term: term}
	for i := range 5 {
		p := v1.Process{Pod: fmt.Sprintf("p-%d", 4-i), Priority: int32(50 - 10*i), Status: v1.ProcessNormal}
		if p.Pod == pod {
			p.Status = v1.ProcessCoordinator
		}
		g.Status.Processes = append(g.Status.Processes, p)
	}
	return g
}

// The demo passes only if the right pod takes over (the next lower priority, or, if a node
// is isolated, the highest priority on another node), and if it grants locks that nobody holds.
func TestDemoFailsIfWrongPodLeads(t *testing.T) {
	for name, tc := range map[string]struct {
		run       func(*demo) error
		successor string
		failed    string
		healed    string
		violation string
		crowded   bool
	}{
		"next priority leads":                    {run: killAgent, successor: "p-3"},
		"a lower priority leads":                 {run: killAgent, successor: "p-2", failed: "p-2 leads, want p-3"},
		"highest priority on another node leads": {run: partitionNode, successor: "p-2", healed: "n-2"},
		"an isolated pod leads":                  {run: partitionNode, successor: "p-3", healed: "n-2", failed: "p-3 leads, want p-2"},
		"a lower priority on another node leads": {run: partitionNode, successor: "p-1", healed: "n-2", failed: "p-1 leads, want p-2"},
		"no majority is left on other nodes":     {run: partitionNode, crowded: true, failed: "3 of 5 members run on the coordinator's node n-2"},
		"the watch ends before a pod leads":      {run: endWatch, failed: errWatch.Error()},
		"a lock was held twice":                  {run: killAgent, successor: "p-3", violation: "duplicate", failed: "THE INVARIANT IS VIOLATED: duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &fakeCluster{afterFault: statusWithLeader(tc.successor, 8), afterHeal: statusWithLeader("p-4", 9), violation: tc.violation, crowded: tc.crowded}
			fake.demo = &demo{out: t.Output(), cluster: fake, now: statusWithLeader("p-4", 7), changed: make(chan struct{})}
			err := tc.run(fake.demo)
			if tc.failed == "" && err != nil || tc.failed != "" && (err == nil || !strings.Contains(err.Error(), tc.failed)) {
				t.Errorf("got %v, want %q", err, tc.failed)
			}
			if fake.healed != tc.healed {
				t.Errorf("healed node %q, want %q", fake.healed, tc.healed)
			}
		})
	}
}

// killAgent kills the coordinator's agent and waits for the next coordinator.
func killAgent(s *demo) error {
	ctx := context.Background()
	return s.injectFaultOnce(ctx, "kill -9", func(victim string) error { return s.cluster.killAgent(ctx, victim, "") }, otherPods)
}

func partitionNode(s *demo) error { return s.partitionNode(context.Background()) }

func endWatch(s *demo) error {
	return s.injectFaultOnce(context.Background(), "nothing", func(string) error {
		s.ended = errWatch
		return nil
	}, otherPods)
}

// The demo warns before it injects faults, as soon as the pods run.
func TestDemoWarnsOfSharedNode(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		printed := &testwait.Log{}
		s := &demo{out: printed, cluster: &fakeCluster{crowded: crowded}, now: statusWithLeader("p-4", 7), changed: make(chan struct{})}
		if err := s.awaitHealthy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(printed.String(), "warning: 3 of 5 members run on the coordinator's node n-2"); got != crowded {
			t.Errorf("crowded %t: got\n%s\nwant a warning: %[1]t", crowded, printed.String())
		}
	}
}
