package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

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
	e.testChaosJob()
}

// testChaosJob runs the Job of the example, with the permissions that it has there.
func (e env) testChaosJob() {
	e.t.Helper()
	text, err := os.ReadFile(filepath.Join(repositoryRoot, "examples", "chaos", "job.yaml"))
	if err != nil {
		e.t.Fatal(err)
	}
	const image = "registry.invalid/kubectl-conclave:v0.1.0"
	requireContains(e.t, string(text), image)
	path := filepath.Join(e.t.TempDir(), "job.yaml")
	adapted := strings.NewReplacer(image, "conclave/kubectl-conclave:e2e", `--faults, "4"`, `--faults, "2"`).Replace(string(text))
	if err := os.WriteFile(path, []byte(adapted), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.kubectl("apply", "--namespace", samplesNamespace, "-f", path)
	defer e.kubectl("delete", "--namespace", samplesNamespace, "-f", path)
	var job batchv1.Job
	e.waitUntil(defaultTimeout, "the Job has ended", func() bool {
		e.get(samplesNamespace, "chaos", &job)
		return job.Status.Succeeded+job.Status.Failed > 0
	})
	log := e.kubectl("logs", "--namespace", samplesNamespace, "job/chaos")
	if job.Status.Succeeded != 1 {
		e.t.Errorf("got a Job that failed, with the log:\n%s", log)
	}
	requireContains(e.t, log, `failures="0"`)
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
