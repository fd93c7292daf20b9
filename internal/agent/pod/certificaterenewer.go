package pod

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const (
	// minRetryDelay and maxRetryDelay bound the delay after a failed enrollment.
	minRetryDelay   = 100 * time.Millisecond
	maxRetryDelay   = 30 * time.Second
	minRenewalDelay = 100 * time.Millisecond
	// clockInterval is the time between two readings of the wall clock while something is due by it. A timer counts
	// neither the time for which the machine was suspended, nor corrections of the clock.
	clockInterval = 10 * time.Second
)

type certificateRenewer struct {
	settings *Settings
	onNames  func(identity.Names)
	// problemsChanged is called when Problems may return something else.
	problemsChanged func()
	log             *slog.Logger
	// now returns the time of day.
	now func() time.Time
	// retryNow is sent when an enrollment that failed may succeed now.
	retryNow signal
	// renewNow is sent when a new certificate would name more groups.
	renewNow signal

	mu sync.Mutex
	// files is nil before there is a certificate.
	files *identity.Files
	// wanted are the groups that the certificate should name.
	wanted  []string
	problem error
}

func newCertificateRenewer(
	s *Settings, onNames func(identity.Names), problemsChanged func(), log *slog.Logger,
) *certificateRenewer {
	return &certificateRenewer{
		settings: s, onNames: onNames, problemsChanged: problemsChanged, log: log, now: time.Now,
		retryNow: newSignal(), renewNow: newSignal(),
	}
}

// want renews the certificate at once if it lacks one of the groups. It does so once for
// each call: the identity service may refuse a group.
func (r *certificateRenewer) want(groups []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = groups
	if r.files != nil && r.lacksGroup() {
		r.renewNow.send()
	}
}

// lacksGroup reports whether the certificate lacks a wanted group. The caller holds the lock.
func (r *certificateRenewer) lacksGroup() bool {
	return slices.ContainsFunc(r.wanted, func(group string) bool { return !r.files.Names().Has(r.settings.name(group)) })
}

// Problems returns why peers refuse the agent's connections, or that they will soon.
func (r *certificateRenewer) Problems() (own, others []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cause := ""
	if r.problem != nil {
		cause = ": " + r.problem.Error()
	}
	if r.files == nil {
		return []string{"waiting for a certificate" + cause}, nil
	}
	switch problem, expired := r.files.Expiry(time.Now()); {
	case expired:
		return []string{problem + cause}, nil
	case problem != "" && cause != "":
		return nil, []string{problem + ", and can't be renewed" + cause}
	}
	return nil, nil
}

func (r *certificateRenewer) notAfter() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files == nil {
		return time.Time{}
	}
	return r.files.NotAfter()
}

func (r *certificateRenewer) reload() {
	r.mu.Lock()
	files := r.files
	r.mu.Unlock()
	if files != nil {
		files.Reload()
		r.onNames(files.Names())
	}
}

// obtain returns the stored certificate, or enrolls for the first one. If the clock of this machine is behind, the
// stored certificate isn't valid yet. It is as soon as the clock is corrected, also without the identity service.
func (r *certificateRenewer) obtain(ctx context.Context) (*identity.Files, error) {
	files, err := r.load()
	if err == nil {
		return files, nil
	}
	err = r.enrollWithRetry(ctx, func() (loaded bool) {
		files, err = r.load()
		return err == nil
	})
	if err != nil || files != nil {
		return files, err
	}
	return r.load()
}

func (r *certificateRenewer) load() (*identity.Files, error) {
	files, err := identity.Open(r.settings.identityPaths(), func(err error) {
		r.log.Error("cannot reload certificate; continuing with the previous one", "error", err)
	})
	if err != nil {
		return nil, err
	}
	if err := r.settings.checkNames(files.Names()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.files = files
	if r.lacksGroup() { // The stored certificate is from before the agent restarted.
		r.renewNow.send()
	}
	r.mu.Unlock()
	r.onNames(files.Names())
	return files, nil
}

// run renews the certificate whenever its renewal time has come, until ctx ends.
func (r *certificateRenewer) run(ctx context.Context) {
	for {
		if !r.awaitRenewal(ctx, renewalTime(r.receivedAt(), r.notAfter())) {
			return
		}
		if r.enrollWithRetry(ctx, func() bool { return false }) != nil {
			return
		}
		r.log.Info("renewed certificate", "until", r.notAfter().UTC().Format(time.RFC3339))
	}
}

func (r *certificateRenewer) receivedAt() time.Time {
	info, err := os.Stat(r.settings.identityPaths().Cert)
	if err != nil {
		return r.now()
	}
	return info.ModTime()
}

// awaitRenewal waits until a renewal is due by the wall clock, or worthwhile now. It returns false if ctx ends before.
func (r *certificateRenewer) awaitRenewal(ctx context.Context, due time.Time) bool {
	for {
		select {
		case <-time.After(min(max(minRenewalDelay, due.Sub(r.now())), clockInterval)):
			if !r.now().Before(due) {
				return true
			}
		case <-r.renewNow:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// renewalTime returns when half of a certificate's lifetime is left, minus a random
// part, so that agents don't renew at the same time. If the clock of this machine is
// ahead, the certificate may expire before it is received. Then it is due at once.
func renewalTime(received, notAfter time.Time) time.Time {
	half := max(0, notAfter.Sub(received)/2)
	return notAfter.Add(-half - rand.N(half/10+1))
}

// enrollWithRetry enrolls until it succeeds, ctx ends, or it is unnecessary: it asks that
// after each failure. It logs an error once if it occurs several times in a row.
func (r *certificateRenewer) enrollWithRetry(ctx context.Context, unnecessary func() bool) error {
	logged, delay := "", minRetryDelay
	for {
		err := r.settings.enroll(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			r.reload()
		}
		r.mu.Lock()
		r.problem = err
		r.mu.Unlock()
		r.problemsChanged()
		if err == nil || unnecessary() {
			return nil
		}
		if err.Error() != logged {
			logged = err.Error()
			r.log.Error("cannot obtain certificate; retrying", "error", err)
		}
		select {
		case <-time.After(delay/2 + rand.N(delay)):
			delay = min(2*delay, maxRetryDelay)
		case <-r.retryNow:
			delay = minRetryDelay
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
