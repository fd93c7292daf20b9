package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const exampleFolder = repositoryRoot + "/examples/kubernetes"

// defaultTimeout limits waits that usually take a few seconds.
const defaultTimeout = 5 * time.Minute

var (
	pods    = []string{"ledger-0", "ledger-1", "ledger-2", "ledger-3", "ledger-4"}
	highest = pods[len(pods)-1]
)

// env is a group of five pods in the cluster, with an observer: that of the example, or that of the samples.
type env struct {
	*cluster
	*observer
	groups map[string]electionGroup // each group in its highest term
}

// testExample follows the README of the example, isolates the coordinator and updates the pods. The parts depend on
// each other, so testExample ends when one fails.
func testExample(c *cluster) {
	c.load(buildImage(c.t, "./cmd/agent", "conclave/agent:example"))
	c.load(buildImage(c.t, "./examples/worker", "conclave/worker:example"))
	c.t.Cleanup(func() { logDiagnostics(c) })
	e := env{cluster: c, observer: observe(c.t, c.name, "ledger")}
	runPrepare(c)
	createVolumes(c)
	start := time.Now()
	c.kubectl("apply", "--namespace", namespace, "-f", exampleFolder+"/ledger.yaml")
	e.awaitAgreement(start, highest, pods...)
	for _, part := range []struct {
		name string
		test func(env)
	}{
		{"the worker beside the coordinator works", testWorker},
		{"agent status shows the group", testStatus},
		{"the majority elects while the coordinator is isolated", testPartition},
		{"there is one coordinator at a time during a rolling update", testRollingUpdate},
	} {
		passed := c.t.Run(part.name, func(t *testing.T) { part.test(e.withT(t)) })
		if found := e.checkConsistency(); found != "" {
			c.t.Fatal(found)
		}
		if !passed {
			c.t.FailNow()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c.t.Logf("tenures:\n%s", strings.Join(describeTenures(e.leading), "\n"))
}

// withT returns the environment for a subtest.
func (e env) withT(t *testing.T) env {
	e.cluster = e.cluster.withT(t)
	return e
}

// runPrepare creates certificates and configurations as users do, with longer leases: on a machine that starts several
// nodes, tenures with the default lease are short, and the highest pod is then held back for minutes.
func runPrepare(c *cluster) {
	c.t.Helper()
	folder := c.t.TempDir()
	example := filepath.Join(folder, "example")
	must.Succeed(c.t, os.CopyFS(example, os.DirFS(exampleFolder)))
	path := filepath.Join(example, "agent.yaml")
	writeFile(c.t, path, readFile(c.t, path)+"  safety: {leaseMillis: 3000}\n  timing: {suspicionTimeoutMillis: 3000}\n")
	agent := filepath.Join(folder, "conclave-agent")
	run(c.t, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", agent, repositoryRoot+"/cmd/agent")
	command := exec.Command(example+"/prepare", "--namespace", namespace)
	command.Env = append(os.Environ(), c.environment...)
	command.Env = append(command.Env, "AGENT="+agent, "KUBECTL="+c.kubectlPath, "OUT="+filepath.Join(folder, "out"))
	if output, err := runCommand(command); err != nil {
		c.t.Fatalf("prepare: %v\n%s", err, output)
	}
}

// createVolumes creates a volume for the state of each pod: the cluster may have no storage class.
func createVolumes(c *cluster) {
	c.t.Helper()
	nodes := c.nodes()
	for i, pod := range pods {
		name, node := "state-"+pod, nodes[i%len(nodes)]
		run(c.t, "docker", "exec", node, "mkdir", "-p", "/var/lib/"+name)
		file := filepath.Join(c.t.TempDir(), "volume.yaml")
		writeFile(c.t, file, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  claimRef: {namespace: %[2]s, name: %[1]s}
  local: {path: /var/lib/%[1]s}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[3]s]}]
`, name, namespace, node))
		c.kubectl("apply", "-f", file)
		c.t.Cleanup(func() { c.kubectl("delete", "--wait=false", "-f", file) })
	}
}

// logDiagnostics logs the agents' logs after a failure, including those of killed agents.
func logDiagnostics(c *cluster) {
	if !c.t.Failed() {
		return
	}
	for _, pod := range pods {
		for _, container := range []string{"agent", "worker"} {
			for _, previous := range []string{"--previous=true", "--previous=false"} {
				if output, err := c.tryKubectl("logs", "--namespace", namespace, pod, "-c", container, previous, "--tail",
					"60"); err == nil && output != "" {
					c.t.Logf("%s, %s, %s:\n%s", pod, container, previous, output)
				}
			}
		}
	}
}

// awaitAgreement waits until all agents in the pods report the same coordinator.
func (e env) awaitAgreement(start time.Time, coordinator string, pods ...string) {
	e.t.Helper()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	limit := time.After(defaultTimeout)
	for !e.agreeOn(coordinator, pods...) {
		select {
		case <-ticker.C:
		case <-limit:
			e.t.Fatalf("condition not met within %s: %s report coordinator %q\n%s", defaultTimeout, pods,
				coordinator, e.describeAgents())
		}
	}
	e.t.Logf("%s report coordinator %q, after %s", strings.Join(pods, ", "), coordinator,
		time.Since(start).Round(time.Millisecond))
}

// describeAgents returns the latest responses of the agents.
func (e env) describeAgents() string {
	var b strings.Builder
	now := e.latestResponses()
	for _, pod := range pods {
		for _, a := range now[pod] {
			fmt.Fprintf(&b, "%s: %+v\n", pod, a.leader)
		}
		if len(now[pod]) == 0 {
			fmt.Fprintf(&b, "%s: no response\n", pod)
		}
	}
	return b.String()
}

// otherPods returns all pods except some.
func otherPods(except ...string) []string {
	return slices.DeleteFunc(slices.Clone(pods), func(pod string) bool { return slices.Contains(except, pod) })
}

func testWorker(e env) {
	token := e.latestResponses()[highest][0].Token
	e.kubectl("wait", "--namespace", namespace, "--for=condition=Ready", "pod", "-l", "app=ledger", "--timeout", "5m",
		"--request-timeout", "0")
	e.waitUntil(defaultTimeout, "the worker of "+highest+" works", func() bool {
		// Fails until the API server knows that the container runs.
		output, err := e.tryKubectl("logs", "--namespace", namespace, highest, "-c", "worker")
		return err == nil && strings.Contains(output, fmt.Sprintf("works with token %d", token))
	})
	for _, pod := range otherPods(highest) {
		if output := e.kubectl("logs", "--namespace", namespace, pod, "-c", "worker"); strings.Contains(output,
			strconv.FormatUint(token, 10)) {
			e.t.Errorf("the worker of %s also works: %s", pod, output)
		}
	}
}

func testStatus(e env) {
	output := e.kubectl("exec", "--namespace", namespace, pods[0], "-c", "agent", "--", "/agent", "status")
	requireContains(e.t, output, "group ledger, seen by "+pods[0]+": StatusTable, Majority, version 1, term ")
	for _, pod := range otherPods(highest) {
		requireContains(e.t, output, pod)
	}
}

func testPartition(e env) {
	nodes := e.nodesOf(namespace, pods...)
	var isolated, rest []string
	for _, pod := range pods {
		if nodes[pod] == nodes[highest] {
			isolated = append(isolated, pod)
		} else {
			rest = append(rest, pod)
		}
	}
	if len(isolated) >= len(rest) {
		e.t.Fatalf("the nodes without the coordinator must have a majority of the pods, got %v", nodes)
	}
	e.t.Cleanup(func() { e.control("heal", nodes[highest]) })
	start := time.Now()
	e.control("partition", nodes[highest])
	e.awaitAgreement(start, rest[len(rest)-1], rest...)
	elected := time.Now()
	e.awaitAgreement(start, "", isolated...)
	for _, pod := range isolated {
		for _, r := range e.latestResponses()[pod] {
			if r.Leading && r.sent.After(elected) {
				e.t.Errorf("isolated pod %s is coordinator: %+v", pod, r)
			}
		}
	}
	start = time.Now()
	e.control("heal", nodes[highest])
	e.awaitAgreement(start, highest, pods...)
}

func testRollingUpdate(e env) {
	before := e.processes()
	start := time.Now()
	e.kubectl("rollout", "restart", "statefulset/ledger", "--namespace", namespace)
	e.kubectl("rollout", "status", "statefulset/ledger", "--namespace", namespace, "--timeout",
		"5m", "--request-timeout", "0")
	e.t.Logf("rolling update took %s", time.Since(start).Round(time.Millisecond))
	e.awaitAgreement(start, highest, pods...)
	for _, process := range e.processes() {
		expect.Equalf(e.t, slices.Contains(before, process), false, "%s wasn't restarted", process.Pod)
	}
	expect.Equal(e.t, findLeaseViolation(e.leadingSince(start)), "")
}
