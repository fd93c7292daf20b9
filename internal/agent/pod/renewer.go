package pod

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// The waits between attempts to enrol, and before the next renewal at least.
const (
	minRetryDelay   = 100 * time.Millisecond
	maxRetryDelay   = 30 * time.Second
	minRenewalDelay = 100 * time.Millisecond
)

// clerk sees to it that the agent has a valid certificate.
type renewer struct {
	settings    *Settings
	credentials *credentials
	// offer takes the documents that come with a certificate.
	acceptDocument func(document string)
	log            *slog.Logger
	// hurry: an attempt that failed may succeed now.
	retryNow chan struct{}

	mu sync.Mutex
	// files are nil before there is a certificate.
	files *identity.Files
	// problem is why the last attempt failed, nil if it didn't.
	problem error
	// look is called when Problems says something else.
	problemsChanged func()
}

func newRenewer(s *Settings, c *credentials, offer func(string), log *slog.Logger) *renewer {
	return &renewer{settings: s, credentials: c, acceptDocument: offer, log: log, retryNow: make(chan struct{}, 1), problemsChanged: func() {}}
}

// Problems are why peers turn the agent away.
func (c *renewer) Problems() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	why := ""
	if c.problem != nil {
		why = ": " + c.problem.Error()
	}
	if c.files == nil {
		return []string{"waits for its certificate" + why}
	}
	if until := c.files.NotAfter(); time.Now().After(until) {
		return []string{"the certificate has expired at " + until.UTC().Format(time.RFC3339) + why}
	}
	return nil
}

// until is when the certificate expires, zero without one.
func (c *renewer) notAfter() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		return time.Time{}
	}
	return c.files.NotAfter()
}

// watch has look called when Problems says something else.
func (c *renewer) onProblemsChanged(look func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problemsChanged = look
}

// soon has the next attempt come at once, if the last one has failed.
func (c *renewer) retry() {
	select {
	case c.retryNow <- struct{}{}:
	default:
	}
}

// begin returns the certificate that is kept, or else the first one that the
// identity service gives.
func (c *renewer) obtain(ctx context.Context) (*identity.Files, error) {
	if files, err := c.load(); err == nil {
		return files, nil
	}
	if err := c.enrollWithRetry(ctx); err != nil {
		return nil, err
	}
	return c.load()
}

// open reads the certificate that is kept.
func (c *renewer) load() (*identity.Files, error) {
	files, err := identity.Open(c.credentials.paths(), func(err error) {
		c.log.Error("goes on with the certificate that it had", "error", err)
	})
	if err != nil {
		return nil, err
	}
	if name := files.Names()[0]; name.Domain != c.settings.Namespace || name.Member != c.settings.Pod {
		return nil, fmt.Errorf("the certificate that is kept is for %s", name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files = files
	return files, nil
}

// renew replaces the certificate whenever its renewal has come, until ctx ends.
func (c *renewer) run(ctx context.Context) {
	for {
		due := time.Until(renewalTime(c.credentials.receivedAt(), c.notAfter()))
		select {
		case <-time.After(max(minRenewalDelay, due)):
		case <-ctx.Done():
			return
		}
		if c.enrollWithRetry(ctx) != nil {
			return
		}
		c.log.Info("has a new certificate", "until", c.notAfter().UTC().Format(time.RFC3339))
	}
}

// renewal is when a third of the time is left for which a certificate was
// received, or a little earlier: not all at once. By a clock that is ahead, one
// may have expired before it was received.
func renewalTime(received, until time.Time) time.Time {
	third := max(0, until.Sub(received)/3)
	return until.Add(-third - rand.N(third/10+1))
}

// enrol tries until it succeeds or ctx ends.
func (c *renewer) enrollWithRetry(ctx context.Context) error {
	told, pause := "", minRetryDelay
	for {
		documents, err := c.settings.enroll(ctx, c.credentials)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.setProblem(err)
		if err == nil {
			for _, document := range documents {
				c.acceptDocument(document)
			}
			return nil
		}
		if errorKind(err) != told {
			told = errorKind(err)
			c.log.Error("has no new certificate, and tries again", "error", err)
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, maxRetryDelay)
		case <-c.retryNow:
			pause = minRetryDelay
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *renewer) setProblem(err error) {
	c.mu.Lock()
	c.problem = err
	look := c.problemsChanged
	c.mu.Unlock()
	look()
}
