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
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/safety"
)

// testChaos runs `kubectl conclave chaos` as users do. It injects every kind but those that take long: all and rollout
// restart all pods, which other parts do.
func testChaos(e env) {
	e.awaitCoordinator(highest)
	e.awaitAllMembers()
	e.injectFaults([]string{chaos.Pod, chaos.ForcePod, chaos.Two, chaos.Evict, chaos.Cordon, chaos.Manager})
	e.injectFaults([]string{chaos.KillAgent, chaos.KillApp, chaos.Freeze, chaos.Partition, chaos.Loss, chaos.APIServer},
		"--machines", "docker")
	e.testChaosJobs()
}

// testChaosJobs runs the Jobs of the examples, with the permissions that they have there: one injects faults, and the
// other judges meanwhile.
func (e env) testChaosJobs() {
	e.t.Helper()
	e.load(buildImage(e.t, "./cmd/kubectl-conclave", "conclave/kubectl-conclave:e2e"))
	end := e.startExampleJob("observe.yaml", "--observe=10m", "--observe=15s")
	e.awaitJob("chaos", e.startExampleJob("job.yaml", `--faults, "4"`, `--faults, "1"`))
	e.awaitJob("judge", end)
}

// startExampleJob creates the objects of an example with replaced flags, and returns the function that deletes them.
func (e env) startExampleJob(name string, replaced ...string) func() {
	e.t.Helper()
	text := must.ReadFile(e.t, filepath.Join(repositoryRoot, "examples", "chaos", name))
	replaced = append(replaced, "registry.invalid/kubectl-conclave:v0.1.0", "conclave/kubectl-conclave:e2e")
	for i := 0; i < len(replaced); i += 2 {
		requireContains(e.t, string(text), replaced[i])
	}
	path := filepath.Join(e.t.TempDir(), name)
	must.Succeed(e.t, os.WriteFile(path, []byte(strings.NewReplacer(replaced...).Replace(string(text))), 0o600))
	e.kubectl("apply", "--namespace", samplesNamespace, "-f", path)
	return func() { e.kubectl("delete", "--namespace", samplesNamespace, "-f", path) }
}

// awaitJob waits until a Job has succeeded, and ends it.
func (e env) awaitJob(name string, end func()) {
	e.t.Helper()
	defer end()
	var job batchv1.Job
	e.waitUntil(defaultTimeout, "the Job "+name+" has ended", func() bool {
		e.get(samplesNamespace, name, &job)
		return job.Status.Succeeded+job.Status.Failed > 0
	})
	log := e.kubectl("logs", "--namespace", samplesNamespace, "job/"+name)
	expect.Equalf(e.t, job.Status.Succeeded, 1, "successes of the Job, with the log\n%s", log)
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
	must.Succeed(e.t, json.Unmarshal(output, &result))
	if len(result.Faults) != len(kinds) || len(result.Violations) > 0 {
		e.t.Errorf("got %d faults and violations %v, want %d faults and none", len(result.Faults),
			result.Violations, len(kinds))
	}
	if slices.ContainsFunc(result.Violations,
		func(v chaos.Violation) bool { return v.Invariant == chaos.OneCoordinator }) {
		e.t.Error(safety.Violated + "see above")
	}
	for i := range result.Faults {
		f := &result.Faults[i]
		e.t.Logf("%s: elected after %s", f.Kind, millis(f.Elected))
		kind, err := chaos.ParseKinds([]string{f.Kind})
		must.Succeed(e.t, err)
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
