// Command chaos runs `kubectl conclave chaos` on groups with each election algorithm and safety mode, and writes the results. See
// docs/chaos.md. It needs the plugin in bin/ (make build).
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/internal/chaos"
)

const namespace = "conclave-chaos"

// The elections and safety modes that are tested.
var (
	algorithms  = []string{"StatusTable", "Bully", "RingAllIDs", "RingChampion", "RingActiveList", "RingSkip"}
	safetyModes = []string{"Majority", "Strict", "Available"}
)

type suite struct {
	cluster cluster
	faults  int
	seed    uint64
	pause   time.Duration
	kinds   string
	// machines is the flag of the plugin.
	machines string
	results  string
}

func main() {
	var s suite
	kind := flag.String("cluster", "hack", "hack starts a throwaway cluster, kind uses the current kind cluster, current uses the current cluster, where the operator must run")
	flag.IntVar(&s.faults, "faults", 200, "the number of faults in all groups together")
	flag.Uint64Var(&s.seed, "seed", 1, "the seed of the first group")
	flag.DurationVar(&s.pause, "pause", time.Second, "the time between two faults")
	flag.StringVar(&s.kinds, "kinds", "", "the kinds of faults (default: all that are possible)")
	flag.StringVar(&s.machines, "machines", "", "how to control the machines of the cluster, as for kubectl conclave chaos (default: hack:chaos for -cluster hack)")
	flag.StringVar(&s.results, "results", "docs/results", "the folder for the results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx, *kind); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// run tests each group. It writes the results so far after each one.
func (s *suite) run(ctx context.Context, kind string) (err error) {
	if s.cluster, err = newCluster(kind); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cluster.remove(context.WithoutCancel(ctx))) }()
	if err := s.cluster.prepare(ctx); err != nil {
		return err
	}
	if _, err := s.cluster.kubectl(ctx, "", "get", "namespace", namespace); err != nil {
		if _, err := s.cluster.kubectl(ctx, "", "create", "namespace", namespace); err != nil {
			return err
		}
	}
	var all []*chaos.Result
	violated := 0
	combinations := len(algorithms) * len(safetyModes)
	for i := range combinations {
		algorithm, safety := algorithms[i%len(algorithms)], safetyModes[i/len(algorithms)]
		fmt.Fprintf(os.Stderr, "# %s, %s\n", algorithm, safety)
		result, err := s.test(ctx, algorithm, safety, (s.faults+combinations-1)/combinations, s.seed+uint64(i))
		if err != nil {
			return fmt.Errorf("%s, %s: %w", algorithm, safety, err)
		}
		all = append(all, result)
		violated += len(result.Violations)
		if err := s.write(all); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if violated > 0 {
		return fmt.Errorf("%d violations of invariants: see %s", violated, filepath.Join(s.results, "chaos.md"))
	}
	return nil
}

// test creates a group, injects faults into it, and deletes it.
func (s *suite) test(ctx context.Context, algorithm, safety string, faults int, seed uint64) (result *chaos.Result, err error) {
	manifest := strings.NewReplacer("ALGORITHM", algorithm, "SAFETY", safety, "IMAGE", s.cluster.application).Replace(groupManifest)
	apply := func(ctx context.Context, arguments ...string) error {
		_, err := s.cluster.kubectl(ctx, manifest, append(arguments, "--namespace", namespace, "-f", "-")...)
		return err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		_, waited := s.cluster.kubectl(ctx, "", "wait", "pod", "--namespace", namespace, "-l", "app=ledger", "--for=delete", "--timeout", "3m")
		err = errors.Join(err, waited)
	}()
	defer func() { err = errors.Join(err, apply(context.WithoutCancel(ctx), "delete", "--wait=false")) }()
	if err := apply(ctx, "apply"); err != nil {
		return nil, err
	}
	if _, err := s.cluster.kubectl(ctx, "", "wait", "electiongroup/ledger", "--namespace", namespace, "--for=condition=Ready", "--timeout", "3m"); err != nil {
		return nil, err
	}
	arguments := []string{
		"chaos", "ledger", "--namespace", namespace, "--faults", fmt.Sprint(faults), "--seed", fmt.Sprint(seed), "--pause", s.pause.String(), "-o", "json",
	}
	if s.kinds != "" {
		arguments = append(arguments, "--kinds", s.kinds)
	}
	if machines := s.machines; machines != "" || s.cluster.kind == "hack" {
		arguments = append(arguments, "--machines", cmp.Or(machines, "hack:"+clusterName))
	}
	var output bytes.Buffer
	command := exec.CommandContext(ctx, "bin/kubectl-conclave", arguments...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // It undoes its fault.
	command.Env, command.Stdout, command.Stderr = s.cluster.environment(), &output, os.Stderr
	failed := command.Run()
	if err := json.Unmarshal(output.Bytes(), &result); err != nil {
		return nil, errors.Join(failed, err)
	}
	return result, nil // Its violations are why the command has failed.
}

// groupManifest is a group of five pods.
const groupManifest = `
apiVersion: conclave.dev/v1
kind: ElectionGroup
metadata:
  name: ledger
  labels: {conclave.dev/chaos: enabled}
spec:
  algorithm: ALGORITHM
  safety: {mode: SAFETY}
  preemption: {stableSeconds: 2}
  members:
  - {pod: ledger-0, priority: 10}
  - {pod: ledger-1, priority: 20}
  - {pod: ledger-2, priority: 30}
  - {pod: ledger-3, priority: 40}
  - {pod: ledger-4, priority: 50}
  service: {name: ledger-coordinator, ports: [{port: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: ledger
spec:
  replicas: 5
  podManagementPolicy: Parallel
  selector:
    matchLabels: {app: ledger}
  template:
    metadata:
      labels: {app: ledger, conclave.dev/agent: enabled}
      annotations: {conclave.dev/groups: ledger}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 5
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: ledger}}}
      containers:
      - name: application
        image: IMAGE
        imagePullPolicy: IfNotPresent
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`
