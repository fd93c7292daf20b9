package e2e

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/testwait"

	"github.com/conclave-dev/conclave/internal/testing/safety"
)

const workloadManifest = repositoryRoot + "/examples/lock-service/manifest.yaml"

var holds = regexp.MustCompile(`^holds: no gap, no duplicate and no stale write in (\d+) writes to 2 resources, by 3 processes`)

// testWorkload runs an example as users do. All its processes must get locks from the coordinator.
func testWorkload(e env) {
	const namespace = "conclave-workload"
	e.kubectl("create", "namespace", namespace)
	e.t.Cleanup(func() { e.kubectl("delete", "namespace", namespace, "--wait=false") })
	e.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	e.kubectl("apply", "--namespace", namespace, "-f", workloadManifest)
	e.waitUntil(defaultTimeout, "lock-service-2 is coordinator", func() bool {
		return e.groupIn(namespace, "lock-service").coordinator() == "lock-service-2"
	})
	e.awaitWrites(namespace, 20)
}

// awaitWrites waits until the processes have made further writes with locks from the coordinator. All writes must have been right.
func (e env) awaitWrites(namespace string, further int) {
	e.t.Helper()
	before := e.writes(namespace)
	// Each check starts a process in a pod.
	if !testwait.Within(defaultTimeout, time.Second, func() bool { return e.writes(namespace) >= before+further }) {
		e.t.Fatalf("%d writes, and within %s not %d further ones with locks", before, defaultTimeout, further)
	}
}

// writes returns the number of writes in the ledger, or 0 while it starts or not all processes have written.
func (e env) writes(namespace string) int {
	e.t.Helper()
	output, err := e.tryKubectl("exec", "--namespace", namespace, "lock-service-ledger-0", "--", "/lock-service", "check", "http://127.0.0.1:8090")
	if strings.Contains(output, "violated") {
		e.t.Fatal(safety.Violated, output)
	}
	match := holds.FindStringSubmatch(output)
	if err != nil || match == nil {
		return 0
	}
	count, _ := strconv.Atoi(match[1]) // It consists of digits.
	return count
}
