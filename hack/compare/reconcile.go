package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"

	_ "embed"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// Reconciling is the report of how long operators reconciled nothing.
type Reconciling struct {
	*Report
	Gaps    []Gap
	Returns []Return
}

// Gap is the longest time between two changes that were reconciled one after the other.
type Gap struct {
	Operator, Election, Fault string
	Took                      *benchmark.Series
	// Calm is the median of the time between two changes without a fault, in milliseconds.
	Calm float64
}

// Return is what happened while the API server and etcd were away for outageLasts.
type Return struct {
	Operator, Election string
	// Took is how long after their return the first change was reconciled, in milliseconds. Exits is how many processes
	// had ended.
	Took  float64
	Exits int
}

const (
	// restBefore passes before each fault, while changes are reconciled and no process is started. Then comes a random
	// part of restMore, which is the longest time between two renewals of the operators' Leases.
	restBefore, restMore = 15 * time.Second, 2 * time.Second
	// gapLimit bounds the wait for another leader that reconciles.
	gapLimit = 5 * time.Minute
)

// reconciler measures operators.
type reconciler struct {
	*runner
	gaps    []Gap
	returns []Return
}

const (
	byLease    = "Lease"
	byConclave = "Conclave"
)

// reconciling measures operators and writes the report.
func reconciling(ctx context.Context, o *options, progress io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "operators-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	r := &reconciler{runner: &runner{
		options: o, env: &environment{agent: o.agent, counted: true}, folder: folder, progress: progress,
		report: &Report{Rounds: o.rounds, Candidates: candidates},
	}}
	r.printf("waiting until the machine is quiet, for a minute at most")
	if err := r.report.describeMachine(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.env.stop()) }()
	r.printf("starting an API server and etcd")
	r.env.server = &envtest.Environment{}
	for _, of := range o.operators() {
		if _, crds, err := of.program("", false); err != nil {
			return err
		} else if crds != "" {
			r.env.server.CRDDirectoryPaths = append(r.env.server.CRDDirectoryPaths, crds)
		}
	}
	if err := r.env.startServer(folder); err != nil {
		return err
	}
	stop := watchDelays()
	if err := r.measure(ctx); err != nil {
		return err
	}
	r.report.DelaysTogether = stop()
	r.report.LoadAfter = loadAverage()
	r.printf("writing %s.md and .json", o.output)
	return (&Reconciling{r.report, r.gaps, r.returns}).write(o.output)
}

// elections returns the elections with which an operator is measured.
func (o *operator) elections() []string {
	if len(o.adapted) == 0 && o.health == "" {
		return []string{byLease}
	}
	return []string{byLease, byConclave}
}

// measure measures the operators with the adapter one after the other, and then all with a Lease at the same time: they
// wait for most of the time.
func (r *reconciler) measure(ctx context.Context) error {
	var leased []*operator
	for _, of := range r.options.operators() {
		leased = append(leased, of)
		if len(of.elections()) > 1 {
			if err := r.measureAll(ctx, []*operator{of}, byConclave); err != nil {
				return err
			}
		}
	}
	return r.measureAll(ctx, leased, byLease)
}

// measureAll measures some operators at the same time: each fault, and then the API server away from all.
func (r *reconciler) measureAll(ctx context.Context, all []*operator, election string) error {
	var sets []*replicas
	defer func() {
		for _, s := range sets {
			s.stop()
		}
	}()
	for _, of := range all {
		file, _, err := of.program(os.Getenv("KUBEBUILDER_ASSETS"), election == byConclave)
		if err != nil {
			return err
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: of.leaseNamespace}}
		s, err := newReplicas(ctx, of, election == byConclave, file,
			filepath.Join(r.folder, of.name+election), r.env, namespace)
		if err != nil {
			return fmt.Errorf("%s: %w", of.title, err)
		}
		sets = append(sets, s)
	}
	var work sync.WaitGroup
	for _, s := range sets {
		work.Go(func() {
			if err := r.faults(ctx, s, election); err != nil {
				r.mutex.Lock()
				defer r.mutex.Unlock()
				r.fail("%s (%s): %v; the last error of the probe: %v", s.of.title, election, err, s.prober.lastError())
			}
		})
	}
	work.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.serverAway(ctx, sets, election)
}

// faults measures each fault.
func (r *reconciler) faults(ctx context.Context, s *replicas, election string) error {
	for _, f := range faults {
		var all []time.Duration
		var calm time.Duration
		for range r.options.rounds {
			if err := s.settle(ctx, restBefore); err != nil {
				return err
			}
			gap, usual, err := s.round(ctx, f)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			all, calm = append(all, gap), usual
		}
		g := Gap{
			Operator: s.of.name, Election: election, Fault: f.name, Took: benchmark.NewSeries(all), Calm: benchmark.Millis(calm),
		}
		r.printf("%s (%s), %s: median %s, max %s, usually %s", s.of.title, election, f.name, duration(g.Took.Median),
			duration(g.Took.Max), duration(g.Calm))
		r.mutex.Lock()
		r.gaps = append(r.gaps, g)
		r.mutex.Unlock()
	}
	return nil
}

var errUnsettled = errors.New("their processes end, or changes aren't reconciled")

// settle returns when changes are reconciled and no process was started for a time.
func (r *replicas) settle(ctx context.Context, rest time.Duration) error {
	limit := time.Now().Add(gapLimit)
	for since, starts := monotonic(), r.starts(); ; {
		if err := benchmark.Wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		_, _, err := r.leader(ctx)
		if now := r.starts(); now != starts || err != nil || r.prober.gap(since) > 2*time.Second ||
			r.prober.after(monotonic()-int64(2*time.Second)) == 0 {
			since, starts = monotonic(), now
		}
		if monotonic()-since > int64(rest) {
			return benchmark.Wait(ctx, rand.N(restMore))
		}
		if time.Now().After(limit) {
			return fmt.Errorf("the replicas don't settle within %s: %w", gapLimit, cmp.Or(err, errUnsettled))
		}
	}
}

// round lets a fault hit the leader. It returns the longest time between two changes that were reconciled one after the
// other, and the median of that time before the fault.
func (r *replicas) round(ctx context.Context, f fault) (gap, calm time.Duration, err error) {
	leader, before, err := r.leader(ctx)
	if err != nil {
		return 0, 0, err
	}
	victim := r.all[leader]
	calm = r.prober.median(monotonic() - int64(restBefore))
	began := monotonic()
	if f.name == silentFault {
		err = r.env.silence(ctx, "add", victim.host)
	} else {
		err = victim.signal(f.signal, r.of.health != "")
	}
	if err != nil {
		return 0, 0, err
	}
	waited := r.awaitAnother(ctx, before)
	switch f.name {
	case silentFault:
		err = r.env.silence(ctx, "delete", victim.host)
	case stopFault:
		err = victim.signal(syscall.SIGCONT, false)
	}
	return r.prober.gap(began), calm, errors.Join(waited, err)
}

// awaitAnother returns when another leader has reconciled a change.
func (r *replicas) awaitAnother(ctx context.Context, before string) error {
	limit := time.Now().Add(gapLimit)
	var since int64
	for since == 0 || r.prober.after(since) < 2 { // The first one may have begun with the former leader.
		if err := benchmark.Wait(ctx, 2*time.Millisecond); err != nil {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("no other leader reconciled within %s", gapLimit)
		}
		if since == 0 {
			if _, now, err := r.leader(ctx); err == nil && now != before {
				since = monotonic()
			}
		}
	}
	return nil
}

// serverAway freezes the API server and etcd.
func (r *reconciler) serverAway(ctx context.Context, sets []*replicas, election string) error {
	starts := make([]int, len(sets))
	for i, s := range sets {
		if err := s.settle(ctx, restBefore); err != nil {
			return err
		}
		starts[i] = s.starts()
	}
	r.printf("API server and etcd away for %s", outageLasts)
	err := freezeServers(ctx, outageLasts)
	if err != nil {
		return err
	}
	back := monotonic()
	for i, s := range sets {
		limited, cancel := context.WithTimeout(ctx, gapLimit)
		for err == nil && s.prober.after(back) < 2 { // The first one may have been reconciled before.
			err = benchmark.Wait(limited, 2*time.Millisecond)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("%s (%s) reconciles nothing after the return of the API server: %w: %w", s.of.title, election,
				err, s.prober.lastError())
		}
		result := Return{Operator: s.of.name, Election: election, Took: benchmark.Millis(time.Duration(s.prober.since(
			back)[1] - back)), Exits: s.starts() - starts[i]}
		r.printf("%s (%s): %s after their return, %d processes ended", s.of.title, election,
			duration(result.Took), result.Exits)
		r.returns = append(r.returns, result)
	}
	return nil
}

//go:embed operators.md.tmpl
var operatorsMarkdown string

// write writes the report, sorted by operator. They were measured at the same time.
func (r *Reconciling) write(output string) error {
	order := func(name, election string) int {
		return 2*slices.IndexFunc(operators, func(o operator) bool { return o.name == name }) +
			strings.Count(election, byConclave)
	}
	slices.SortStableFunc(r.Gaps,
		func(a, b Gap) int { return order(a.Operator, a.Election) - order(b.Operator, b.Election) })
	slices.SortStableFunc(r.Returns,
		func(a, b Return) int { return order(a.Operator, a.Election) - order(b.Operator, b.Election) })
	return writeReport(output, operatorsMarkdown, r, template.FuncMap{
		"title": operatorTitle, "operators": func() []operator { return operators },
		"gap": func(like *Gap, fault string) *Gap {
			return find(r.Gaps, func(g *Gap) bool {
				return g.Operator == like.Operator && g.Election == like.Election && g.Fault == fault
			})
		},
	})
}

func operatorTitle(name string) string {
	for _, o := range operators {
		if o.name == name {
			return o.title
		}
	}
	return name
}

// Title, Version and Settings are for the report.
func (o operator) Title() string    { return o.title }
func (o operator) Version() string  { return o.version }
func (o operator) Settings() string { return o.settings }
