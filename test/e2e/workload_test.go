package e2e

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/conclave-dev/conclave/internal/testing/safety"
)

const workloadManifest = repositoryRoot + "/examples/lock-service/manifest.yaml"

var holds = regexp.MustCompile(`^holds: no gap, no duplicate and no stale write in (\d+) writes to 2 resources, by 3 processes`)

// testWorkload runs an example as users do. All its processes must get locks from the coordinator.
func testWorkload(e env) {
	const namespace, enough = "conclave-workload", 20
	e.kubectl("create", "namespace", namespace)
	e.t.Cleanup(func() { e.kubectl("delete", "namespace", namespace, "--wait=false") })
	e.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	e.kubectl("apply", "--namespace", namespace, "-f", workloadManifest)
	e.waitUntil(defaultTimeout, "lock-service-2 is coordinator", func() bool {
		return e.groupIn(namespace, "lock-service").coordinator() == "lock-service-2"
	})
	e.waitUntil(defaultTimeout, "all processes use the locks", func() bool {
		output, err := e.tryKubectl("exec", "--namespace", namespace, "lock-service-ledger-0", "--", "/lock-service", "check", "http://127.0.0.1:8090")
		if strings.Contains(output, "violated") {
			e.t.Fatal(safety.Violated, output)
		}
		match := holds.FindStringSubmatch(output)
		if err != nil || match == nil { // The ledger is starting, or not all processes have written.
			return false
		}
		writes, err := strconv.Atoi(match[1])
		return err == nil && writes >= enough
	})
}
