package lease

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fake is a Lease at an API server.
type fake struct {
	resourcelock.Interface

	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
	// failing is why requests fail, and refusing is set if renewals fail. took is how long the response to a write takes.
	failing  error
	refusing bool
	took     time.Duration
	renewed  time.Time
}

func (f *fake) Identity() string { return "new" }

func (f *fake) Describe() string { return "default/ledger" }

func (f *fake) RecordEvent(string) {}

func (f *fake) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.failing != nil:
		return nil, nil, f.failing
	case f.record == nil:
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "ledger")
	}
	record := *f.record
	if record.HolderIdentity == "old" {
		record.RenewTime.Time = time.Now() // The old replica renews its Lease.
	}
	return &record, []byte(record.HolderIdentity + record.RenewTime.String()), nil
}

func (f *fake) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	f.mu.Lock()
	if f.failing != nil || f.refusing && record.HolderIdentity != "" {
		defer f.mu.Unlock()
		return cmp.Or(f.failing, errors.New("refused"))
	}
	f.record, f.renewed = &record, time.Now()
	took := f.took
	f.mu.Unlock()
	time.Sleep(took)
	return nil
}

func (f *fake) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.Update(ctx, record)
}

// set changes the Lease.
func (f *fake) set(holder string, failing error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record = &resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15}
	f.failing = failing
}

func (f *fake) change(took time.Duration, refusing bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took, f.refusing = took, refusing
}

func (f *fake) holder() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.record.HolderIdentity
}

// age returns for how long the Lease hasn't been renewed.
func (f *fake) age() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.renewed)
}

func (f *fake) run(ctx context.Context, lead func(context.Context, uint64) error) error {
	return AlsoHold(leaderelection.LeaderElectionConfig{
		Lock: f, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
	}, lead)(ctx, 7)
}

var errAway = errors.New("the API server is away")

// TestLeaseIsReleasedAfterWork: it is held as long as lead runs, also after the tenure has ended.
func TestLeaseIsReleasedAfterWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, done := &fake{}, errors.New("done")
		ctx, end := context.WithCancel(t.Context())
		err := f.run(ctx, func(_ context.Context, token uint64) error {
			if token != 7 || f.holder() != "new" {
				t.Errorf("got token %d and holder %q", token, f.holder())
			}
			end()
			time.Sleep(20 * time.Second) // Others would have it after 15 s.
			if age := f.age(); f.holder() != "new" || age > 3*time.Second {
				t.Errorf("got holder %q, renewed %s ago, while lead still runs", f.holder(), age)
			}
			return done
		})
		if !errors.Is(err, done) || f.holder() != "" {
			t.Errorf("got %v and holder %q, want the result, and that the Lease is free", err, f.holder())
		}
	})
}

// TestLeadEndsWithoutRenewal: lead is told 10 s after the request of the last renewal, whenever the response came. It
// is called again once renewals succeed. Meanwhile, client-go's elector gives up, and the Lease isn't released.
func TestLeadEndsWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, calls, done := &fake{took: time.Second / 2}, 0, errors.New("done")
		err := f.run(t.Context(), func(ctx context.Context, _ uint64) error {
			if calls++; calls == 2 {
				return done
			}
			f.change(time.Second/2, true)
			<-ctx.Done()
			if age := f.age(); age != 10*time.Second || !errors.Is(context.Cause(ctx), ErrNotRenewed) {
				t.Errorf("told %s after the last renewal because of %v, want 10s", age, context.Cause(ctx))
			}
			time.Sleep(3 * time.Second)
			if f.holder() != "new" {
				t.Error("the Lease was released, although lead still runs")
			}
			f.change(time.Second/2, false)
			return ctx.Err()
		})
		if !errors.Is(err, done) {
			t.Errorf("got %v, want the result of the second call", err)
		}
	})
}

// TestLeadNeedsFreshLease: the response to the request for it came late, so another replica may have the Lease soon.
func TestLeadNeedsFreshLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{took: 11 * time.Second}
		time.AfterFunc(time.Second, func() { f.change(0, true) })
		time.AfterFunc(20*time.Second, func() { f.change(0, false) })
		_ = f.run(t.Context(), func(context.Context, uint64) error {
			if age := f.age(); age > 10*time.Second {
				t.Errorf("lead is called %s after the request for the Lease", age)
			}
			return errors.New("done")
		})
	})
}

// TestLeaseOfAnotherIsNotReleased: client-go's elector would release what it believes to have.
func TestLeaseOfAnotherIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		_ = f.run(t.Context(), func(context.Context, uint64) error {
			f.set("old", nil)
			return errors.New("done")
		})
		if got := f.holder(); got != "old" {
			t.Errorf("got holder %q, want the replica that has the Lease", got)
		}
	})
}

// TestUnavailableLeaseEndsTheTenure: another member may reach the API server. To wait for a replica that has the Lease
// doesn't end it.
func TestUnavailableLeaseEndsTheTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, start := &fake{}, time.Now()
		f.set("old", nil)
		time.AfterFunc(10*time.Minute, func() { f.set("old", errAway) })
		err := f.run(t.Context(), func(context.Context, uint64) error {
			t.Error("lead was called without the Lease")
			return nil
		})
		if took := time.Since(start) - 10*time.Minute; !errors.Is(err, ErrUnavailable) || took < 10*time.Second ||
			took > 15*time.Second || !strings.Contains(err.Error(), "default/ledger") {
			t.Errorf("got %v %s after the API server was away, want an error with the Lease after 15s", err, took)
		}
	})
}
