package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// outageLasts is how long the API server and etcd are away.
const outageLasts = time.Minute

// Outage is what happened while the API server and etcd were away, in milliseconds.
type Outage struct {
	System string
	// Vacant is for how long no candidate said that it leads, until all candidates agreed again, and Two for how long
	// several did.
	Vacant, Two float64
	// Changed: another candidate leads afterwards.
	Changed bool
}

// outage freezes the API server and etcd, with a set of each system that tells its processes whether they lead.
func (r *runner) outage(ctx context.Context) error {
	claiming := slices.DeleteFunc(slices.Clone(r.systems), func(s system) bool { return s.unclaimed })
	if r.env.server == nil || len(claiming) == 0 {
		return nil
	}
	r.printf("API server and etcd away: starting each system")
	sets := r.settledSets(ctx, claiming, 1, slowPoll)
	defer func() {
		for _, s := range sets {
			s.stop()
		}
	}()
	before := make([]int, len(sets))
	var err error
	for i, s := range sets {
		if before[i], err = s.calm(ctx); err != nil {
			return err
		}
	}
	began := monotonic()
	r.printf("API server and etcd away for %s", outageLasts)
	if err := freezeServers(ctx, outageLasts); err != nil {
		return err
	}
	for i, s := range sets {
		after, err := s.settle(ctx)
		if err != nil {
			r.fail("%s, without API server: %s", s.of.title, err)
			continue
		}
		s.mutex.Lock()
		end := monotonic()
		claims := s.closedClaims(began)
		s.mutex.Unlock()
		o := Outage{
			System: s.of.name, Changed: after != before[i],
			Vacant: benchmark.Millis(vacant(claims, began, end)), Two: benchmark.Millis(overlap(claims, claim{index: -1})),
		}
		r.report.Outages = append(r.report.Outages, o)
		r.printf("%s: without a leader for %s", s.of.title, duration(o.Vacant))
	}
	return nil
}

// vacant returns for how long there was no claim.
func vacant(claims []claim, from, to int64) time.Duration {
	slices.SortFunc(claims, func(a, b claim) int { return int(a.from - b.from) })
	var sum int64
	for _, c := range claims {
		sum += max(0, min(c.from, to)-from)
		from = max(from, c.to)
	}
	return time.Duration(sum + max(0, to-from))
}

// freezeServers stops all processes of the API server and of etcd that this process has started, and continues them
// after a time.
func freezeServers(ctx context.Context, lasts time.Duration) error {
	servers, err := children("kube-apiserver", "etcd")
	if err != nil {
		return err
	}
	if len(servers) != 2 {
		return fmt.Errorf("found %d processes of the API server and etcd, want 2", len(servers))
	}
	for _, pid := range servers {
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGSTOP))
	}
	if err == nil {
		err = benchmark.Wait(ctx, lasts)
	}
	for _, pid := range servers {
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
	}
	return err
}

// children returns the processes with these names that this process has started.
func children(names ...string) (found []int, err error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		status, err := os.ReadFile(filepath.Join(folder, "status"))
		if err != nil {
			continue // It has ended.
		}
		fields := strings.Fields(string(status))
		parent := slices.Index(fields, "PPid:") + 1
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil && slices.Contains(names, fields[1]) &&
			fields[parent] == strconv.Itoa(os.Getpid()) {
			found = append(found, pid)
		}
	}
	return found, err
}
