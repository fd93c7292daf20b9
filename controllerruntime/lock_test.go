package controllerruntime

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
)

func newLock() lock {
	e := New("ledger")
	e.Options(ctrl.Options{})
	return lock{e.current}
}

// acquire is what the elector of client-go does.
func (l lock) acquire(ctx context.Context) error {
	if _, _, err := l.Get(ctx); err != nil {
		return err
	}
	return l.Update(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: l.identity})
}

// TestLockNeedsRun: without Run, nothing would stop the manager when the tenure ends.
func TestLockNeedsRun(t *testing.T) {
	if err := newLock().acquire(t.Context()); err == nil {
		t.Error("a manager acquired the lock outside of Run")
	}
}

func TestElectorWaitsForTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, acquired := newLock(), make(chan error, 1)
		l.running = true
		go func() { acquired <- l.acquire(t.Context()) }()
		synctest.Wait()
		if len(acquired) > 0 || l.Token() != 0 {
			t.Fatal("the elector doesn't wait")
		}
		l.begin(&tenure{ctx: t.Context(), token: 7})
		if err := <-acquired; err != nil || l.Token() != 7 {
			t.Errorf("got %v and token %d, want the lock with token 7", err, l.Token())
		}
		record, _, err := l.Get(t.Context())
		if err != nil || record.HolderIdentity != l.Identity() {
			t.Errorf("got %v, %v, want a record of this process", record, err)
		}
	})
}

// TestTenureThatEndsEarly: it isn't acquired, and the elector waits for the next one.
func TestTenureThatEndsEarly(t *testing.T) {
	l := newLock()
	l.running = true
	over, end := context.WithCancel(t.Context())
	l.begin(&tenure{ctx: over, token: 7})
	if _, _, err := l.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	end()
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: l.identity}); err == nil ||
		l.Token() != 0 {
		t.Errorf("got %v and token %d, want that a tenure that has ended isn't acquired", err, l.Token())
	}
	if !l.withdraw() {
		t.Error("a tenure that wasn't acquired can't be withdrawn")
	}
	l.begin(&tenure{ctx: t.Context(), token: 8})
	if err := l.acquire(t.Context()); err != nil || l.withdraw() {
		t.Errorf("got %v, want that the next tenure is acquired and stays", err)
	}
}

// TestManagerThatStopsIsNotElected: nothing runs that could end early with it.
func TestManagerThatStopsIsNotElected(t *testing.T) {
	l := newLock()
	l.running = true
	l.begin(&tenure{ctx: t.Context(), token: 7})
	if !l.close() {
		t.Error("controllers run, although the elector hasn't acquired the lock")
	}
	ended, end := context.WithCancel(t.Context())
	end() // So Get doesn't wait for ever.
	record := resourcelock.LeaderElectionRecord{HolderIdentity: l.identity}
	if acquired, updated := l.acquire(ended), l.Update(t.Context(), record); acquired == nil ||
		updated == nil || l.Token() != 0 {
		t.Errorf("got %v, %v and token %d, want that a manager that stops isn't elected", acquired, updated, l.Token())
	}
}

// With a short Lease, client-go's elector gives up when it couldn't renew for a moment.
func TestTimesOfTheLeaseDontCount(t *testing.T) {
	short := time.Second
	got := New("ledger").Options(ctrl.Options{LeaseDuration: &short, RenewDeadline: &short, RetryPeriod: &short})
	if got.LeaseDuration != nil || got.RenewDeadline != nil || *got.RetryPeriod >= short {
		t.Errorf("got lease duration %v, renew deadline %v and retry period %v, want the defaults and a shorter period",
			got.LeaseDuration, got.RenewDeadline, got.RetryPeriod)
	}
}

func TestManagerNeedsOptions(t *testing.T) {
	if err := New("ledger").Run(t.Context(), func(context.Context) error { return nil }); err == nil {
		t.Error("a manager ran without the lock")
	}
}

// TestShutdownWithoutGraceIsAnError: Start must not return nil while controllers run.
func TestShutdownWithoutGraceIsAnError(t *testing.T) {
	var none time.Duration
	got := New("ledger").Options(ctrl.Options{GracefulShutdownTimeout: &none}).GracefulShutdownTimeout
	if *got <= 0 {
		t.Errorf("got a timeout of %s, for which controller-runtime doesn't say whether controllers run", *got)
	}
}

// TestManagerRunsOnce: after an error, controllers may still run.
func TestManagerRunsOnce(t *testing.T) {
	e := newLock()
	start := func(context.Context) error { return nil }
	if first, second := e.Run(t.Context(), start), e.Run(t.Context(), start); first != nil || second == nil {
		t.Errorf("got %v and %v, want that only the first run succeeds", first, second)
	}
}

// TestInvalidAddressIsReported: a wrong address ends Run, in place of a standby that never leads.
func TestInvalidAddressIsReported(t *testing.T) {
	t.Setenv("CONCLAVE_AGENT", "ftp://nowhere")
	l := newLock()
	err := l.Run(t.Context(), func(ctx context.Context) error {
		_ = l.acquire(ctx)
		<-ctx.Done()
		return nil
	})
	if err == nil {
		t.Error("got no error for an invalid address of the agent")
	}
}

// TestLeaseNeedsItsName: that of the group is another Lease than the one of the other replicas.
func TestLeaseNeedsItsName(t *testing.T) {
	for want, options := range map[string]ctrl.Options{
		"LeaderElectionID":        {LeaderElectionNamespace: "default"},
		"LeaderElectionNamespace": {LeaderElectionID: "old"}, // There is no file with that of a pod.
	} {
		e := New("ledger").AlsoHold(&rest.Config{})
		e.Options(options)
		err := e.Run(t.Context(), func(context.Context) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}

func TestOptionsKeepTheRest(t *testing.T) {
	e := New("ledger")
	got := e.Options(ctrl.Options{LeaderElectionID: "mine", HealthProbeBindAddress: ":1"})
	if got.LeaderElectionID != "mine" || got.HealthProbeBindAddress != ":1" ||
		!*got.Controller.EnableWarmup || !got.LeaderElection {
		t.Errorf("got %+v, want the given options with leader election", got)
	}
	if got := e.Options(ctrl.Options{}).LeaderElectionID; got != "ledger" {
		t.Errorf("got ID %q, want the group's name", got)
	}
}
