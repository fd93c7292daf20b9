package agents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/safety"
)

var (
	// errNotLeading means that the application isn't coordinator, or cannot prove it. The operation had no effect.
	errNotLeading = errors.New("not leading")
	// errDead means that the application was killed before it responded. The operation may or may not have had an effect.
	errDead = errors.New("the application was killed")
)

// application is a model of a program that uses an agent correctly. While it is coordinator, it caches the registers,
// writes through to the storage with its token, and serves reads from its cache as long as it has a lease. The lease
// starts before the application sends the query that renews it.
type application struct {
	cluster *agentcluster.Cluster
	storage *storage
	// agent is the name of its agent. id is unique to this incarnation of the application.
	agent, id string
	// noLease is set in Available mode, in which there are no leases.
	noLease bool
	gate    gate
	// ctx ends when the application is killed.
	ctx        context.Context
	end        context.CancelFunc
	goroutines sync.WaitGroup

	mutex   sync.Mutex
	session string
	// token is the token of the current tenure, or 0. cache is a copy of the storage, nil before the agent has confirmed
	// the tenure.
	token uint64
	cache map[int]int
	// leaseEnd is the end of the current lease.
	leaseEnd time.Time
	// violation shows that there was more than one coordinator.
	violation error
}

// renewInterval is the interval at which an application renews its lease.
const renewInterval = 25 * time.Millisecond

func newApplication(ctx context.Context, t *agentcluster.Cluster, s *storage, agent string,
	incarnation int, noLease bool,
) *application {
	a := &application{
		cluster: t, storage: s, agent: agent, id: fmt.Sprintf("%s, incarnation %d", agent, incarnation), noLease: noLease,
	}
	a.ctx, a.end = context.WithCancel(ctx)
	a.goroutines.Go(a.runSession)
	a.goroutines.Go(a.renewLease)
	return a
}

// kill ends the application, even while it is paused.
func (a *application) kill() { a.end() }

// runSession opens a session, and another one whenever it ends.
func (a *application) runSession() {
	again := time.NewTicker(renewInterval)
	defer again.Stop()
	for a.ctx.Err() == nil {
		session := ""
		// The tenure ends with the session, whatever the error is.
		_ = a.cluster.Session(a.ctx, a.agent, func(event agentcluster.SessionEvent) {
			if !a.gate.wait(a.ctx) {
				return
			}
			switch event.Kind {
			case "session":
				session = event.Session
				a.setSession(session)
			case "lead":
				a.startTenure(event.Token)
			case "stop":
				a.endTenure()
				// If the agent has ended, it doesn't need the confirmation.
				_ = a.cluster.Stopped(a.ctx, a.agent, session, event.Term)
			case "lost":
				a.endTenure()
			}
		})
		if !a.gate.wait(a.ctx) {
			return
		}
		a.endTenure()
		select {
		case <-again.C:
		case <-a.ctx.Done():
		}
	}
}

// setSession stores the session for renewals.
func (a *application) setSession(session string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.session = session
}

func (a *application) startTenure(token uint64) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.token, a.cache, a.leaseEnd = token, nil, time.Time{}
}

// confirmTenure uses the token for the first time. The caller holds the mutex.
func (a *application) confirmTenure() {
	memory, err := a.storage.load(a.token, a.id)
	if err != nil {
		a.token = 0 // A later coordinator has already accessed the storage.
		return
	}
	a.cache = memory
}

// endTenure returns when no operation is in progress.
func (a *application) endTenure() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.token = 0
}

// renewLease renews the lease periodically while the application is coordinator.
func (a *application) renewLease() {
	again := time.NewTicker(renewInterval)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-a.ctx.Done():
			return
		}
		if !a.gate.wait(a.ctx) || !a.isLeading() {
			continue
		}
		a.mutex.Lock()
		session := a.session
		a.mutex.Unlock()
		sent := time.Now()
		ctx, cancel := context.WithTimeout(a.ctx, 4*renewInterval)
		leader, err := a.cluster.Renew(ctx, a.agent, session)
		cancel()
		if err != nil || !a.gate.wait(a.ctx) {
			continue
		}
		a.mutex.Lock()
		if leader.Leading && leader.Token == a.token && a.cache == nil {
			a.confirmTenure()
		}
		if leader.Leading && leader.Token == a.token {
			a.leaseEnd = sent
			if leader.RemainingMillis != nil {
				a.leaseEnd = sent.Add(time.Duration(*leader.RemainingMillis) * time.Millisecond)
			} else if a.noLease {
				a.leaseEnd = sent.Add(time.Hour)
			}
		}
		a.mutex.Unlock()
	}
}

// isLeading reports whether the application is coordinator, with or without a lease.
func (a *application) isLeading() bool {
	if a.ctx.Err() != nil {
		return false
	}
	// A paused operation may hold the lock; the application is then coordinator.
	if !a.mutex.TryLock() {
		return true
	}
	defer a.mutex.Unlock()
	return a.token != 0
}

func (a *application) read(register int) (value int, err error) {
	if !a.gate.wait(a.ctx) {
		return 0, errNotLeading
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if !a.hasLease() {
		return 0, errNotLeading
	}
	if !a.gate.wait(a.ctx) {
		return 0, errDead
	}
	return a.cache[register], nil
}

func (a *application) write(register, value int) error {
	if !a.gate.wait(a.ctx) {
		return errNotLeading
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if !a.hasLease() {
		return errNotLeading
	}
	if !a.gate.wait(a.ctx) {
		return errDead
	}
	if err := a.storage.write(a.token, a.id, register, value); err != nil {
		if a.hasLease() && !a.noLease {
			a.violation = fmt.Errorf("%sthe storage rejected the token of %s at register %d, although its lease ends in %s",
				safety.Violated, a.id, register, time.Until(a.leaseEnd))
		}
		return err
	}
	if !a.gate.wait(a.ctx) {
		return errDead
	}
	a.cache[register] = value
	return nil
}

func (a *application) verify() error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.violation
}

func (a *application) hasLease() bool {
	return a.token != 0 && a.cache != nil && time.Now().Before(a.leaseEnd) && a.ctx.Err() == nil
}

// gate pauses an application while it is closed.
type gate struct {
	mutex sync.Mutex
	// closed is nil while the gate is open.
	closed chan struct{}
}

func (g *gate) close() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// wait waits until the gate is open. It returns false if ctx ends.
func (g *gate) wait(ctx context.Context) bool {
	g.mutex.Lock()
	closed := g.closed
	g.mutex.Unlock()
	if closed != nil {
		select {
		case <-closed:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
