package e2e

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/testing/safety"
)

// machinesNamespace permits the privileged pods of --machines pod.
const machinesNamespace = "default"

// testChaos runs `kubectl conclave chaos` as users do. It injects every kind but those that take long: all and rollout restart all
// pods, which other parts do.
func testChaos(e env) {
	e.awaitCoordinator(highest)
	e.awaitAllMembers()
	e.injectFaults([]string{chaos.Pod, chaos.ForcePod, chaos.Two, chaos.Evict, chaos.Cordon, chaos.Manager, chaos.KillAgent},
		"--machines", e.machines)
	e.injectFaults([]string{chaos.KillAgent, chaos.KillApp, chaos.Freeze, chaos.Partition, chaos.Delay},
		"--machines", "pod", "--machines-namespace", machinesNamespace)
	e.waitUntil(defaultTimeout, "the privileged pods are deleted", func() bool {
		return e.kubectl("get", "pods", "--namespace", machinesNamespace, "-l", "app.kubernetes.io/name=conclave-chaos", "-o", "name") == ""
	})
}

// injectFaults injects one fault of each kind.
func (e env) injectFaults(kinds []string, flags ...string) {
	e.t.Helper()
	output := e.runPlugin(append([]string{
		"chaos", "ledger", "--faults", strconv.Itoa(len(kinds)),
		"--seed", "7", "--kinds", strings.Join(kinds, ","), "--pause", "0s", "--yes", "-o", "json",
	}, flags...)...)
	var result chaos.Result
	if err := json.Unmarshal(output, &result); err != nil {
		e.t.Fatal(err)
	}
	if len(result.Faults) != len(kinds) || len(result.Violations) > 0 {
		e.t.Errorf("got %d faults and violations %v, want %d faults and none", len(result.Faults), result.Violations, len(kinds))
	}
	if slices.ContainsFunc(result.Violations, func(v chaos.Violation) bool { return v.Invariant == chaos.OneCoordinator }) {
		e.t.Error(safety.Violated + "see above")
	}
	for i := range result.Faults {
		f := &result.Faults[i]
		e.t.Logf("%s: elected after %s", f.Kind, millis(f.Elected))
		kind, err := chaos.ParseKinds([]string{f.Kind})
		if err != nil {
			e.t.Fatal(err)
		}
		if f.Refused != "" || f.Settled == nil || kind[0].Expect == chaos.ElectionExpected && f.Elected == nil {
			e.t.Errorf("got %+v, want an injected fault with its durations", f)
		}
	}
}

func millis(duration *float64) string {
	if duration == nil {
		return "-"
	}
	return strconv.FormatFloat(*duration, 'f', 1, 64) + " ms"
}
