// Command chaos runs `kubectl conclave chaos` on groups with each election algorithm and safety mode, and writes the
// results. See docs/chaos.md. It needs the plugin in bin/ (make build).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/internal/chaos"
)

type suite struct {
	cluster cluster
	faults  int
	seed    uint64
	pause   time.Duration
	// timeout is the flag of the plugin.
	timeout time.Duration
	kinds   string
	// workloads are the names of examples, separated by commas.
	workloads string
	unfenced  bool
	// groups is the number of groups, of those with each election and safety mode.
	groups   int
	parallel int
	// machines is the flag of the plugin.
	machines string
	// delays: these machines can delay packets.
	delays  bool
	results string
	// keep: add to the results that are there.
	keep bool
	// traffic is the number of rounds in which the traffic of clients is measured, instead of all else.
	traffic int
	ways    string // by which the clients reach the coordinator, separated by commas

	mu  sync.Mutex
	all []*run
}

func main() {
	var s suite
	kind := flag.String("cluster", "kind", "kind uses the current kind cluster, and installs the operator; current uses "+
		"the current cluster, where the operator must run")
	flag.IntVar(&s.faults, "faults", 200, "the number of faults in all groups together, rounded up")
	flag.Uint64Var(&s.seed, "seed", 1, "the seed of the first group")
	flag.DurationVar(&s.pause, "pause", time.Second, "the time between two faults of a group")
	flag.DurationVar(&s.timeout, "timeout", 10*time.Minute,
		"the time within which a group must settle after a fault. On an overloaded machine, starting a pod takes minutes")
	flag.StringVar(&s.kinds, "kinds", "", "the kinds of faults (default: all that are possible)")
	flag.StringVar(&s.workloads, "workloads", strings.Join(workloads, ","), "the workloads that the groups run in turn")
	flag.IntVar(&s.groups, "groups", len(groups(workloads)),
		"the number of groups, from 1: the first ones have different elections, later ones other safety modes")
	flag.IntVar(&s.parallel, "parallel", 1, "the number of groups at the same time. Faults that concern all groups are "+
		"injected into one group at a time, afterwards")
	flag.BoolVar(&s.unfenced, "unfenced", false,
		"let the ledgers of the workloads accept outdated tokens. Then the suite must report violated invariants")
	flag.StringVar(&s.machines, "machines", "",
		"the program that controls the nodes, as for kubectl conclave chaos (default: docker for -cluster kind)")
	flag.StringVar(&s.results, "results", "docs/results", "the folder for the results")
	flag.BoolVar(&s.keep, "append", false, "add to the results in the folder, instead of replacing them")
	flag.IntVar(&s.traffic, "traffic", 0, "measure what clients of a Service see of each fault (or of those in -kinds), "+
		"in so many rounds, instead of all else")
	flag.StringVar(&s.ways, "ways", allWays, "the ways of -traffic")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	start := func() error { return s.start(ctx, *kind) }
	if flag.NArg() > 0 {
		start = func() error { return inPod(ctx, flag.Args(), os.Stdout) }
	}
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// start checks the flags, prepares the cluster and tests all groups.
func (s *suite) start(ctx context.Context, kind string) (err error) {
	if s.cluster, err = newCluster(kind); err != nil {
		return err
	}
	if s.machines == "" && kind == "kind" {
		s.machines = "docker"
	}
	if s.traffic > 0 {
		return s.measureTraffic(ctx)
	}
	if s.delays, err = s.cluster.delays(ctx, s.machines); err != nil {
		return err
	}
	phases, err := s.plan()
	if err != nil {
		return err
	}
	if s.keep {
		if s.all, err = read[run](s.results, "chaos"); err != nil {
			return err
		}
	}
	before := len(s.all)
	defer func() { err = errors.Join(err, s.cluster.deleteGroups(context.WithoutCancel(ctx))) }()
	var programs []string
	for name := range strings.SplitSeq(s.workloads, ",") {
		programs = append(programs, "examples/"+name)
	}
	if err := s.cluster.prepare(ctx, programs...); err != nil {
		return err
	}
	for _, p := range phases {
		if err := s.runAll(ctx, p); err != nil {
			return err
		}
	}
	return errors.Join(ctx.Err(), s.verdict(s.all[before:]))
}

// phase is a list of jobs, and the number of those that run at the same time.
type phase struct {
	jobs     []*job
	parallel int
}

// plan returns the jobs. Groups that are tested at the same time must not disturb each other, so faults that concern
// all groups have a phase of their own.
func (s *suite) plan() (phases []phase, err error) {
	if s.faults < 1 || s.parallel < 1 {
		return nil, fmt.Errorf("-faults and -parallel must be 1 or more, got %d and %d", s.faults, s.parallel)
	}
	chosen := strings.Split(s.workloads, ",")
	tested := groups(chosen)
	if s.groups < 1 || s.groups > len(tested) {
		return nil, fmt.Errorf("-groups must be from 1 to %d, got %d", len(tested), s.groups)
	}
	for _, name := range chosen {
		if !slices.Contains(workloads, name) {
			return nil, fmt.Errorf("-workloads must be some of %s, got %q", strings.Join(workloads, ","), name)
		}
	}
	kinds := slices.DeleteFunc(chaos.Kinds(), func(k chaos.Kind) bool { return !s.isPossible(&k) })
	if s.kinds != "" {
		if kinds, err = chaos.ParseKinds(strings.Split(s.kinds, ",")); err != nil {
			return nil, fmt.Errorf("-kinds: %w", err)
		}
	}
	var own, shared []string
	for _, k := range kinds {
		if k.Shared && s.parallel > 1 {
			shared = append(shared, k.Name)
		} else {
			own = append(own, k.Name)
		}
	}
	for i, p := range []struct {
		kinds    []string
		parallel int
	}{{own, s.parallel}, {shared, 1}} {
		if len(p.kinds) > 0 {
			phases = append(phases, phase{s.jobs(tested[:s.groups], p.kinds, i, len(kinds)), p.parallel})
		}
	}
	return phases, nil
}

// isPossible reports whether the command can inject a kind of fault with these machines. It refuses a kind by name that
// it can't.
func (s *suite) isPossible(k *chaos.Kind) bool {
	switch {
	case k.Access != chaos.ByMachine:
		return true
	case k.Name == chaos.Delay:
		return s.delays
	}
	return s.machines != ""
}

// jobs returns a job for each group. Its part of the faults is as large as its part of all kinds.
func (s *suite) jobs(groups []group, kinds []string, number, allKinds int) (jobs []*job) {
	parts := len(groups) * allKinds
	faults := (s.faults*len(kinds) + parts - 1) / parts
	for i, g := range groups {
		jobs = append(jobs, &job{
			group: g, kinds: kinds, faults: faults, seed: s.seed + uint64(i+number*len(groups)), //nolint:gosec // both are small
			namespace: strings.ToLower(fmt.Sprintf("chaos-%s-%s-%d", g.algorithm, g.safety, number+1)),
		})
	}
	return jobs
}

// runAll runs the jobs of a phase. It writes the results so far after each one.
func (s *suite) runAll(ctx context.Context, p phase) (err error) {
	next := make(chan *job)
	var workers sync.WaitGroup
	failures := make(chan error, len(p.jobs))
	for range p.parallel {
		workers.Go(func() {
			for j := range next {
				report("%s: %s, %s, %s, %d faults", j.namespace, j.algorithm, j.safety, j.workload, j.faults)
				failures <- s.finish(s.run(ctx, j))
			}
		})
	}
	for _, j := range p.jobs {
		select {
		case next <- j:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	close(failures)
	for failure := range failures {
		err = errors.Join(err, failure)
	}
	return err
}

// finish adds the results of a run.
func (s *suite) finish(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Error != "" {
		report("%s: FAILED: %s", r.Namespace, r.Error)
	}
	s.all = append(s.all, r)
	return write(s.results, "chaos", s.all, page(s.all, chaos.Summarize(faultsOf(s.all))))
}

// verdict returns an error if an invariant was violated, or if not all faults were injected.
func (s *suite) verdict(all []*run) error {
	violations, failures := 0, 0
	for _, r := range all {
		violations += len(r.Violations)
		if r.Error != "" {
			failures++
		}
	}
	if violations+failures == 0 {
		return nil
	}
	return fmt.Errorf("%d violations of invariants, and %d runs that weren't completed: see %s", violations, failures,
		filepath.Join(s.results, "chaos.md"))
}
