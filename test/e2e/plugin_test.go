package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// buildPlugin builds the kubectl plugin.
func (c *cluster) buildPlugin() {
	c.t.Helper()
	c.plugin = filepath.Join(c.t.TempDir(), "kubectl-conclave")
	run(c.t, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", c.plugin, repositoryRoot+"/cmd/kubectl-conclave")
}

// runPlugin runs a command of the plugin in the namespace of the samples, and returns its output.
func (e env) runPlugin(arguments ...string) []byte {
	e.t.Helper()
	return e.runPluginIn(samplesNamespace, arguments...)
}

func (e env) runPluginIn(namespace string, arguments ...string) []byte {
	e.t.Helper()
	command := exec.Command(e.plugin, append(arguments, "--namespace", namespace)...)
	command.Env = append(os.Environ(), e.environment...)
	output, err := command.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		e.t.Fatalf("%v: %v\n%s%s", arguments, err, output, failed.Stderr)
	}
	must.Succeed(e.t, err)
	return output
}

// testPlugin runs the commands of the plugin that need a kubelet: explain reads the journals of the agents through
// forwarded ports.
func testPlugin(e env) {
	e.awaitCoordinator(highest)
	e.awaitAllMembers()
	explained := string(e.runPlugin("explain", "ledger"))
	e.t.Log(explained)
	// The pod may have been elected, or another one has handed over, which voted first.
	for _, part := range []string{highest + " has been the coordinator of ", " finds  tenure " + highest + ", term "} {
		requireContains(e.t, explained, part)
	}
	e.t.Logf("%s", e.runPlugin("check", "ledger")) // fails if there is a problem

	archive := filepath.Join(e.t.TempDir(), "report.tar.gz")
	e.t.Logf("%s", e.runPlugin("report", "ledger", "--file", archive))
	for _, name := range []string{"journals/" + highest + ".json", "logs/" + highest + ".log", "status.txt"} {
		requireContains(e.t, run(e.t, "tar", "--extract", "--to-stdout", "--file", archive, "report/"+name), highest)
	}
}

// testStrict cuts off a node with three of five members, which keep their coordinator, force-deletes their pods, and
// removes them from the group. The other two must not elect a coordinator before it is known that one of the three has
// stopped.
func testStrict(e env) {
	const namespace = "conclave-strict"
	nodes := e.nodes()
	cut := nodes[len(nodes)-1]
	e.kubectl("label", "nodes", "--all", "--overwrite", "conclave-e2e=rest")
	e.kubectl("label", "node", cut, "--overwrite", "conclave-e2e=cut")
	e.createNamespace(namespace)
	e.t.Cleanup(func() {
		e.control("start", cut) // Otherwise the namespace cannot be deleted.
		e.control("heal", cut)
	})
	observer := observe(e.t, e.name, "strict")
	get := func(arguments ...string) string {
		return e.kubectl(append([]string{"get", "--namespace", namespace, "--ignore-not-found"}, arguments...)...)
	}
	e.kubectl("apply", "--namespace", namespace, "-f", "testdata/strict.yaml")
	all := []string{"strict-rest-0", "strict-rest-1", "strict-cut-0", "strict-cut-1", "strict-cut-2"}
	e.waitUntil(defaultTimeout, "all members follow strict-cut-2",
		func() bool { return observer.agreeOn("strict-cut-2", all...) })
	start := time.Now()

	e.control("partition", cut)
	removed := all[2:]
	e.kubectl(append([]string{"delete", "pod", "--namespace", namespace, "--grace-period=0", "--force", "--wait=false"},
		removed...)...)
	e.kubectl("patch", "electiongroup", "strict", "--namespace", namespace, "--type", "json", "-p",
		`[{"op":"remove","path":"/spec/members/4"},{"op":"remove","path":"/spec/members/3"},{"op":"remove","path":"/spec/members/2"}]`)
	e.waitUntil(defaultTimeout, "the status asks for a confirmation", func() bool {
		return strings.Contains(get("electiongroup", "strict", "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].message}`),
			"strict-cut-0, strict-cut-1 and strict-cut-2 were deleted, but may still run")
	})
	for _, pod := range removed {
		if get("pod", pod, "-o", "name") == "" {
			e.t.Errorf("pod %s no longer exists, although it is unknown whether it has stopped", pod)
		}
	}
	if !observer.agreeOn("strict-cut-2", removed...) {
		e.t.Errorf("the members that are cut off must keep their coordinator, got %+v", observer.latestResponses())
	}
	for _, r := range observer.leadingSince(start) {
		if r.from.Pod != "strict-cut-2" {
			e.t.Fatalf("%s was coordinator beside strict-cut-2: %s", r.from.Pod, format(r))
		}
	}
	if state := get("electiongroup", "strict", "-o", "jsonpath={.status.protocol.memberList.state}"); state != "Adopting" {
		e.t.Errorf("got a member list that is %s, want Adopting", state)
	}

	e.control("kill", cut)
	uid := get("pod", "strict-cut-0", "-o", "jsonpath={.metadata.uid}")
	e.kubectl("annotate", "electiongroup", "strict", "--namespace", namespace, "--overwrite",
		"conclave.dev/confirm-stopped=strict-cut-0/"+uid)
	e.waitUntil(defaultTimeout, "the other members follow strict-rest-1", func() bool {
		return observer.agreeOn("strict-rest-1", "strict-rest-0", "strict-rest-1")
	})
	expect.Equal(e.t, findContradiction(observer.leadingSince(start)), "")

	before := strings.Fields(get("pod", "strict-cut-1", "strict-cut-2", "-o", "jsonpath={.items[*].metadata.uid}"))
	if len(before) != 2 {
		e.t.Fatalf("got pods %v, want two that nobody has confirmed", before)
	}
	e.control("start", cut)
	e.waitUntil(defaultTimeout, "the kubelet has reported that the other pods have stopped", func() bool {
		after := get("pods", "-o", "jsonpath={.items[*].metadata.uid}")
		for _, old := range before {
			if strings.Contains(after, old) {
				return false
			}
		}
		return true
	})
	// A pod that stops in an orderly way needs no confirmation.
	e.kubectl("delete", "pod", "strict-rest-0", "--namespace", namespace, "--timeout", "5m", "--request-timeout", "0")
	e.waitUntil(defaultTimeout, "strict-rest-0 has returned", func() bool {
		return observer.agreeOn("strict-rest-1", "strict-rest-0", "strict-rest-1")
	})
}
