package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const example = top + "/examples/kubernetes"

// soon bounds what takes a few seconds; only failures wait for it.
const soon = time.Minute

var (
	pods    = []string{"ledger-0", "ledger-1", "ledger-2", "ledger-3", "ledger-4"}
	highest = pods[len(pods)-1]
)

// ledger is the example in the cluster.
type ledger struct {
	*cluster
	*observer
	seen map[string]electionGroup // each group as it was in its highest term
}

// testExample follows the example's README, and then has everything befall the coordinator that can, from a killed process
// to a rolling update. Its parts build on each other, so the first that fails ends it.
func testExample(c *cluster) {
	if c.own == nil {
		c.t.Skip("it ends processes and cuts off nodes: that takes a cluster of its own")
	}
	c.load(makeImage(c.t, "./cmd/agent", "conclave/agent:example"))
	c.load(makeImage(c.t, "./examples/go", "conclave/example-go:example"))
	c.t.Cleanup(func() { explain(c) })
	l := ledger{cluster: c, observer: observe(c.t, c.name, "ledger", askEvery)}
	prepare(c)
	begun := time.Now()
	c.kubectl("apply", "--namespace", namespace, "-f", example+"/ledger.yaml")
	l.await(begun, highest, pods...)
	for _, part := range []struct {
		name string
		test func(ledger)
	}{
		{"the worker beside the coordinator works", testWorker},
		{"people and probes see the table", testStatus},
		{"the next highest follows a killed agent", testKilledAgent},
		{"the next highest follows a deleted pod", testDeletedPod},
		{"the majority elects while the coordinator is cut off", testPartition},
		{"nobody leads beside another during a rolling update", testRollout},
	} {
		passed := c.t.Run(part.name, func(t *testing.T) { part.test(l.in(t)) })
		if found := l.contradiction(); found != "" {
			c.t.Fatal(found)
		}
		if !passed {
			c.t.FailNow()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.t.Logf("tenures:\n%s", strings.Join(tenures(l.led), "\n"))
}

// in is the ledger for a subtest.
func (l ledger) in(t *testing.T) ledger {
	l.cluster = l.cluster.in(t)
	return l
}

// prepare makes certificates and configurations as users do.
func prepare(c *cluster) {
	c.t.Helper()
	folder := c.t.TempDir()
	agent := filepath.Join(folder, "conclave-agent")
	run(c.t, "go", "build", "-o", agent, top+"/cmd/agent")
	command := exec.Command(example+"/prepare", "--namespace", namespace)
	command.Env = append(os.Environ(), c.environment...)
	command.Env = append(command.Env, "AGENT="+agent, "KUBECTL="+c.client, "OUT="+filepath.Join(folder, "out"))
	if said, err := output(command); err != nil {
		c.t.Fatalf("prepare: %v\n%s", err, said)
	}
}

// explain shows after a failure what the agents had to say, also those that were killed.
func explain(c *cluster) {
	if !c.t.Failed() {
		return
	}
	for _, pod := range pods {
		for _, container := range []string{"agent", "worker"} {
			for _, life := range []string{"--previous=true", "--previous=false"} {
				if said, err := c.try("logs", "--namespace", namespace, pod, "-c", container, life, "--tail", "60"); err == nil && said != "" {
					c.t.Logf("%s, %s, %s:\n%s", pod, container, life, said)
				}
			}
		}
	}
}

// await waits until all the agents in the pods say that one leads.
func (l ledger) await(begun time.Time, coordinator string, pods ...string) {
	l.t.Helper()
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	limit := time.After(soon)
	for !l.agree(coordinator, pods...) {
		select {
		case <-ticker.C:
		case <-limit:
			l.t.Fatalf("not within %s: %s leads for %s\n%s", soon, coordinator, pods, l.told())
		}
	}
	l.t.Logf("%s leads for %s, after %s", coordinator, strings.Join(pods, ", "), time.Since(begun).Round(time.Millisecond))
}

// told is what the agents say now.
func (l ledger) told() string {
	var b strings.Builder
	now := l.now()
	for _, pod := range pods {
		for _, a := range now[pod] {
			fmt.Fprintf(&b, "%s: %+v\n", pod, a.leader)
		}
		if len(now[pod]) == 0 {
			fmt.Fprintf(&b, "%s: no answer\n", pod)
		}
	}
	return b.String()
}

// besides are the pods but for some.
func besides(some ...string) []string {
	return slices.DeleteFunc(slices.Clone(pods), func(pod string) bool { return slices.Contains(some, pod) })
}

func testWorker(l ledger) {
	token := l.now()[highest][0].Token
	l.kubectl("wait", "--namespace", namespace, "--for=condition=Ready", "pod", "-l", "app=ledger", "--timeout", "30s")
	l.eventually(soon, "the worker of "+highest+" works", func() bool {
		said, err := l.try("logs", "--namespace", namespace, highest, "-c", "worker") // The API server may not know yet that it runs.
		return err == nil && strings.Contains(said, fmt.Sprintf("works with token %d", token))
	})
	for _, pod := range besides(highest) {
		if said := l.kubectl("logs", "--namespace", namespace, pod, "-c", "worker"); strings.Contains(said, strconv.FormatUint(token, 10)) {
			l.t.Errorf("the worker of %s, too: %s", pod, said)
		}
	}
}

func testStatus(l ledger) {
	said := l.kubectl("exec", "--namespace", namespace, pods[0], "-c", "agent", "--", "/agent", "status")
	requirePart(l.t, said, "group ledger, seen by "+pods[0]+": StatusTable, Majority, version 1, term ")
	for _, pod := range besides(highest) {
		requirePart(l.t, said, pod)
	}
}

func testKilledAgent(l ledger) {
	agents := l.processes()
	killed := slices.IndexFunc(agents, func(p process) bool { return p.Pod == highest })
	if killed < 0 {
		l.t.Fatalf("%s has no agent", highest)
	}
	begun := time.Now()
	if err := syscall.Kill(agents[killed].PID, syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	l.await(begun, pods[3], besides(highest)...)
	l.await(begun, highest, pods...) // The container is started again, and its agent is stable.
}

func testDeletedPod(l ledger) {
	begun := time.Now()
	l.kubectl("delete", "pod", highest, "--namespace", namespace, "--grace-period=0", "--force")
	l.await(begun, pods[3], besides(highest)...)
	l.await(begun, highest, pods...)
}

func testPartition(l ledger) {
	nodes := map[string]string{}
	for _, pod := range pods {
		nodes[pod] = l.kubectl("get", "pod", pod, "--namespace", namespace, "-o", "jsonpath={.spec.nodeName}")
	}
	var off, rest []string
	for _, pod := range pods {
		if nodes[pod] == nodes[highest] {
			off = append(off, pod)
		} else {
			rest = append(rest, pod)
		}
	}
	if len(off) >= len(rest) {
		l.t.Fatalf("no majority is left without the coordinator's node: the pods are on %v", nodes)
	}
	l.t.Cleanup(func() { l.own("heal", nodes[highest]) })
	begun := time.Now()
	l.own("partition", nodes[highest])
	l.await(begun, rest[len(rest)-1], rest...)
	elected := time.Now()
	l.await(begun, "", off...)
	for _, pod := range off {
		for _, said := range l.now()[pod] {
			if said.Leading && said.sent.After(elected) {
				l.t.Errorf("%s is cut off and leads: %+v", pod, said)
			}
		}
	}
	begun = time.Now()
	l.own("heal", nodes[highest])
	l.await(begun, highest, pods...)
}

func testRollout(l ledger) {
	before := l.processes()
	begun := time.Now()
	l.kubectl("rollout", "restart", "statefulset/ledger", "--namespace", namespace)
	l.kubectl("rollout", "status", "statefulset/ledger", "--namespace", namespace, "--timeout", "3m", "--request-timeout", "0")
	l.t.Logf("rolled out after %s", time.Since(begun).Round(time.Millisecond))
	l.await(begun, highest, pods...)
	for _, process := range l.processes() {
		if slices.Contains(before, process) {
			l.t.Errorf("%s wasn't restarted", process.Pod)
		}
	}
	if found := brokenPromise(l.since(begun)); found != "" {
		l.t.Error(found)
	}
}
