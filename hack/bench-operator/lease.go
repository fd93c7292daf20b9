package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// Lease contains the results for client-go's leader election, which Conclave is compared
// with: three processes with default settings.
type Lease struct {
	Candidates int
	// Kills measures the time from just before the leader's process is killed until
	// another process starts leading.
	Kills *benchmark.Series
	// Writes and Reads are the requests per minute for this Lease while nothing happens.
	Seconds  float64
	Writes   float64
	Reads    float64
	Failures []string
}

const (
	candidates = 3
	// The defaults of client-go, which kube-scheduler and others use.
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second

	candidateCommand = "candidate"
	leaseUser        = "bench-candidate"
	leaseNamespace   = "default"
)

// leaseHarness runs the candidates.
type leaseHarness struct {
	kubeconfig string
	running    map[string]*benchmark.Child
	count      int
	// acquired receives the name of each candidate that starts leading, with the time at
	// which the benchmark learned of it.
	acquired chan acquisition
}

type acquisition struct {
	name string
	at   time.Time
}

func (r *runner) lease(ctx context.Context, s *server) (lease *Lease, err error) {
	if err := s.grantAdmin(ctx, leaseUser); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(r.folder, "candidate.kubeconfig")
	if err := s.addUser(kubeconfig, leaseUser); err != nil {
		return nil, err
	}
	requests, err := newRequestCounter(ctx, s.admin, "lease", leaseUser)
	if err != nil {
		return nil, err
	}
	h := &leaseHarness{kubeconfig: kubeconfig, running: map[string]*benchmark.Child{}, acquired: make(chan acquisition, candidates)}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		h.close()
	}()
	for range candidates {
		if err := h.startCandidate(ctx); err != nil {
			return nil, err
		}
	}
	leader, err := h.awaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	lease = &Lease{Candidates: candidates}
	r.printf("lease: counting requests for %s", r.options.leaseIdle)
	if err := lease.idle(ctx, requests, r.options.leaseIdle); err != nil {
		return nil, err
	}
	return lease, r.leaseKills(ctx, h, leader.name, lease)
}

func (r *runner) leaseKills(ctx context.Context, h *leaseHarness, leader string, lease *Lease) error {
	var all []time.Duration
	for i := range r.options.leaseRounds {
		r.printf("lease: kill %d of %d", i+1, r.options.leaseRounds)
		// Kill at a random moment between two renewals.
		if err := benchmark.Wait(ctx, rand.N(retryPeriod)); err != nil {
			return err
		}
		victim := h.running[leader]
		killed := time.Now()
		if err := victim.Process.Kill(); err != nil {
			return err
		}
		delete(h.running, leader)
		next, err := h.awaitLeader(ctx)
		if err != nil {
			lease.Failures = append(lease.Failures, fmt.Sprintf("kill %d: %s", i+1, err))
			break
		}
		all = append(all, next.at.Sub(killed))
		leader = next.name
		if err := h.startCandidate(ctx); err != nil {
			return err
		}
	}
	lease.Kills = benchmark.NewSeries(all)
	return ctx.Err()
}

func (l *Lease) idle(ctx context.Context, requests *requestCounter, period time.Duration) error {
	elapsed, requested, err := requests.during(ctx, period)
	if err != nil {
		return err
	}
	l.Seconds = elapsed.Seconds()
	l.Writes = requested[leaseWrites] / elapsed.Minutes()
	l.Reads = requested[leaseReads] / elapsed.Minutes()
	return nil
}

// startCandidate starts another candidate, which runs this program.
func (h *leaseHarness) startCandidate(ctx context.Context) error {
	h.count++
	name := fmt.Sprintf("candidate-%d", h.count)
	process, err := benchmark.StartChild(ctx, candidateCommand, h.kubeconfig, name)
	if err != nil {
		return err
	}
	h.running[name] = process
	go func() {
		if _, err := process.ReadLine(); err == nil { // It prints one line: that it leads.
			h.acquired <- acquisition{name, time.Now()}
		}
		_ = process.Wait() // The process was killed.
	}()
	return nil
}

// awaitLeader returns the next candidate that starts leading.
func (h *leaseHarness) awaitLeader(ctx context.Context) (acquisition, error) {
	const limit = 4 * leaseDuration
	select {
	case next := <-h.acquired:
		return next, nil
	case <-time.After(limit):
		return acquisition{}, fmt.Errorf("no candidate led within %s", limit)
	case <-ctx.Done():
		return acquisition{}, ctx.Err()
	}
}

func (h *leaseHarness) close() {
	for _, c := range h.running {
		_ = c.Process.Kill() // It may have exited.
	}
}

func newCandidateCommand() *cobra.Command {
	return &cobra.Command{
		Use: candidateCommand + " KUBECONFIG NAME", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", arguments[0])
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			leaderelection.RunOrDie(command.Context(), leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta:  metav1.ObjectMeta{Namespace: leaseNamespace, Name: "bench"},
					Client:     client.CoordinationV1(),
					LockConfig: resourcelock.ResourceLockConfig{Identity: arguments[1]},
				},
				LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(context.Context) { fmt.Fprintln(command.OutOrStdout(), "leads") },
					OnStoppedLeading: func() {},
				},
			})
			return errors.New("lost the Lease")
		},
	}
}
