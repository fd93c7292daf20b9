package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// Lease is what people use today: three processes of client-go's leaderelection
// with its defaults.
type Lease struct {
	Candidates int `json:"candidates"`
	// Kills are from right before the leader's process is killed until the next
	// one begins to lead.
	Kills *benchmark.Series `json:"kills,omitempty"`
	// Writes and Reads are requests a minute, while nothing happens, for this one
	// Lease.
	Seconds  float64  `json:"idleSeconds"`
	Writes   float64  `json:"idleWritesPerMinute"`
	Reads    float64  `json:"idleReadsPerMinute"`
	Failures []string `json:"failures,omitempty"`
}

const (
	candidates = 3
	// The defaults of client-go, as kube-scheduler and others have them.
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second

	candidateCommand = "candidate"
	leads            = "leads"
	leaseUser        = "bench-candidate"
	leaseNamespace   = "default"
)

// candidate is a process that wants to lead.
type candidate struct {
	process *exec.Cmd
	name    string
}

// race are the candidates.
type race struct {
	kubeconfig string
	running    map[string]*candidate
	started    int
	// leading has the name of each that begins to lead, and when that was heard.
	leading chan beginning
}

type beginning struct {
	name string
	at   time.Time
}

func (m *measurer) lease(ctx context.Context, s *server) (lease *Lease, err error) {
	if err := s.allow(ctx, leaseUser); err != nil {
		return nil, err
	}
	kubeconfig, err := s.user(leaseUser)
	if err != nil {
		return nil, err
	}
	requests, err := newMeter(ctx, s.admin, "lease", leaseUser)
	if err != nil {
		return nil, err
	}
	r := &race{kubeconfig: filepath.Join(m.folder, "candidate.kubeconfig"), running: map[string]*candidate{}, leading: make(chan beginning, candidates)}
	if err := os.WriteFile(r.kubeconfig, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		r.end()
	}()
	for range candidates {
		if err := r.enter(ctx); err != nil {
			return nil, err
		}
	}
	leader, err := r.next(ctx)
	if err != nil {
		return nil, err
	}
	lease = &Lease{Candidates: candidates}
	m.say("lease: counting requests for %s", m.options.leaseIdle)
	if err := lease.idle(ctx, requests, m.options.leaseIdle); err != nil {
		return nil, err
	}
	return lease, m.leaseKills(ctx, r, leader.name, lease)
}

func (m *measurer) leaseKills(ctx context.Context, r *race, leader string, lease *Lease) error {
	var all []time.Duration
	for i := range m.options.leaseRounds {
		m.say("lease: kill %d of %d", i+1, m.options.leaseRounds)
		// A kill can come at any moment between two renewals.
		if err := benchmark.Wait(ctx, rand.N(retryPeriod)); err != nil {
			return err
		}
		victim := r.running[leader]
		moment := time.Now()
		if err := victim.process.Process.Kill(); err != nil {
			return err
		}
		delete(r.running, leader)
		next, err := r.next(ctx)
		if err != nil {
			lease.Failures = append(lease.Failures, fmt.Sprintf("kill %d: %s", i+1, err))
			return ctx.Err()
		}
		all = append(all, next.at.Sub(moment))
		leader = next.name
		if err := r.enter(ctx); err != nil {
			return err
		}
	}
	lease.Kills = benchmark.NewSeries(all)
	return nil
}

func (l *Lease) idle(ctx context.Context, requests *meter, period time.Duration) error {
	before, err := requests.count(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := benchmark.Wait(ctx, period); err != nil {
		return err
	}
	after, err := requests.count(ctx)
	if err != nil {
		return err
	}
	elapsed := time.Since(begun)
	sent := after.since(before)
	l.Seconds = elapsed.Seconds()
	l.Writes = sent[leaseWrites] / elapsed.Minutes()
	l.Reads = sent[leaseReads] / elapsed.Minutes()
	return nil
}

// enter starts another candidate: this program once more.
func (r *race) enter(ctx context.Context) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	r.started++
	name := fmt.Sprintf("candidate-%d", r.started)
	process := exec.CommandContext(ctx, executable, candidateCommand, r.kubeconfig, name)
	process.Stderr = os.Stderr
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		return fmt.Errorf("start a candidate: %w", err)
	}
	r.running[name] = &candidate{process, name}
	go func() {
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			if strings.TrimSpace(lines.Text()) == leads {
				r.leading <- beginning{name, time.Now()}
			}
		}
		_ = process.Wait() // It was killed.
	}()
	return nil
}

// next waits for the next one that leads.
func (r *race) next(ctx context.Context) (beginning, error) {
	const limit = 4 * leaseDuration
	select {
	case next := <-r.leading:
		return next, nil
	case <-time.After(limit):
		return beginning{}, fmt.Errorf("nobody led within %s", limit)
	case <-ctx.Done():
		return beginning{}, ctx.Err()
	}
}

func (r *race) end() {
	for _, c := range r.running {
		_ = c.process.Process.Kill() // It may have ended.
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
					OnStartedLeading: func(context.Context) { fmt.Fprintln(command.OutOrStdout(), leads) },
					OnStoppedLeading: func() {},
				},
			})
			return errors.New("it leads no more")
		},
	}
}
