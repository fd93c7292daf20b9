package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/chaos"
)

// The elections and safety modes that are tested, and the programs that use the coordinator meanwhile.
var (
	algorithms  = []string{"StatusTable", "Bully", "RingAllIDs", "RingChampion", "RingActiveList", "RingSkip"}
	safetyModes = []string{"Majority", "Strict", "Available"}
	workloads   = []string{"device-owner", "lock-service"}
)

// managed selects the namespaces of the suite.
const managed = "app.kubernetes.io/managed-by=conclave-chaos"

// ledgerDelay limits how much CPU time the workloads take from the agents.
const ledgerDelay = 25 * time.Millisecond

//go:embed group.yaml
var manifest string

// group is a group that the suite creates, breaks and deletes.
type group struct {
	algorithm, safety, workload string
}

// exclusive is the workload whose invariant needs a safety mode in which there is at most one coordinator: two
// coordinators can grant the same lock.
const exclusive = "lock-service"

// groups returns a group of each election and safety mode, with these workloads in turn.
func groups(workloads []string) (all []group) {
	for _, safety := range safetyModes {
		usable := slices.DeleteFunc(slices.Clone(workloads),
			func(name string) bool { return safety == "Available" && name == exclusive })
		for _, algorithm := range algorithms {
			if len(usable) > 0 {
				// The shift gives an algorithm another workload in each mode.
				turn := len(all) + len(all)/len(algorithms)
				all = append(all, group{algorithm, safety, usable[turn%len(usable)]})
			}
		}
	}
	return all
}

// job is a run of kubectl conclave chaos on a group.
type job struct {
	group

	namespace string
	kinds     []string
	faults    int
	seed      uint64
}

// run runs a job on a new group, which it deletes. The run has an error if not all faults were injected.
func (s *suite) run(ctx context.Context, j *job) *run {
	began := time.Now()
	r := &run{Result: &chaos.Result{}, Workload: j.workload}
	err := s.create(ctx, j)
	if err == nil {
		err = s.inject(ctx, j, r.Result)
	}
	if err == nil {
		r.Resources, err = s.resources(ctx)
	}
	r.Algorithm, r.Safety, r.Namespace, r.Group, r.Seed = j.algorithm, j.safety, j.namespace, j.workload, j.seed
	_, deleted := s.cluster.kubectl(context.WithoutCancel(ctx), "", "delete", "namespace", j.namespace,
		"--ignore-not-found", "--wait=false")
	if err = errors.Join(err, deleted); err != nil && ctx.Err() == nil {
		r.Error = err.Error()
	}
	r.Seconds, r.Load, r.Machine = time.Since(began).Seconds(), load(), machine()
	return r
}

func (s *suite) create(ctx context.Context, j *job) error {
	text := strings.NewReplacer("NAMESPACE", j.namespace, "WORKLOAD", j.workload, "ALGORITHM",
		j.algorithm, "SAFETY", j.safety,
		"UNFENCED", fmt.Sprint(s.unfenced), "DELAY", ledgerDelay.String()).Replace(manifest)
	if _, err := s.cluster.kubectl(ctx, text, "apply", "-f", "-"); err != nil {
		return err
	}
	for _, wait := range [][]string{
		{"rollout", "status", "statefulset/" + j.workload + "-ledger", "--timeout=5m"},
		{"rollout", "status", "statefulset/" + j.workload, "--timeout=5m"},
		{"wait", "electiongroup/" + j.workload, "--for=condition=Ready", "--timeout=5m"},
	} {
		if _, err := s.cluster.kubectl(ctx, "", append(wait, "--namespace", j.namespace)...); err != nil {
			return err
		}
	}
	return nil
}

// inject runs kubectl conclave chaos.
func (s *suite) inject(ctx context.Context, j *job, result *chaos.Result) error {
	const check = "kubectl exec --namespace $NAMESPACE $GROUP-ledger-0 -- /$GROUP check " +
		"--progress=1m http://127.0.0.1:8090"
	arguments := []string{
		"chaos", j.workload, "--namespace", j.namespace, "--kinds", strings.Join(j.kinds, ","),
		"--faults", fmt.Sprint(j.faults),
		"--seed", fmt.Sprint(j.seed), "--pause", s.pause.String(), "--timeout", s.timeout.String(),
		"--check", check, "-o", "json",
		"--yes", // The cluster is for chaos tests.
	}
	if s.machines != "" {
		arguments = append(arguments, "--machines", s.machines)
	}
	var output bytes.Buffer
	progress := &lines{prefix: j.namespace + ": "}
	command := exec.CommandContext(ctx, "bin/kubectl-conclave", arguments...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // It undoes its fault.
	command.Stdout, command.Stderr = &output, progress
	failed := command.Run()
	if output.Len() > 0 {
		if err := json.Unmarshal(output.Bytes(), result); err != nil {
			return errors.Join(failed, err)
		}
	}
	if len(result.Violations) > 0 || failed == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", failed, progress.last)
}

// lines writes whole lines with a prefix to standard error.
type lines struct {
	prefix  string
	partial []byte
	last    string
}

// printing keeps the lines of parallel groups apart.
var printing sync.Mutex

func (l *lines) Write(text []byte) (int, error) {
	l.partial = append(l.partial, text...)
	for {
		line, rest, complete := bytes.Cut(l.partial, []byte("\n"))
		if !complete {
			return len(text), nil
		}
		l.last, l.partial = string(line), rest
		report("%s%s", l.prefix, line)
	}
}

// report prints one line of progress.
func report(format string, arguments ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", arguments...)
}
