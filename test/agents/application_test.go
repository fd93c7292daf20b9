package agents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

var (
	// errNotLeading: the application can't prove that it leads. Nothing happened.
	errNotLeading = errors.New("not leading")
	// errDead: the application ended before it answered. Anything may have happened.
	errDead = errors.New("the application has ended")
)

// application does what a program with an agent at its side should do. While it
// leads it has the registers in memory, writes through to the storage with its
// token, and answers reads from memory as long as it can prove that it still
// leads: for what remains of the lease, counted from before it asked.
type application struct {
	troupe  *agentcluster.Cluster
	storage *storage
	// agent is the name of its agent, bearer its own, another one in each life.
	agent, bearer string
	// endless: the agents are in Available mode, where leading has no end that is
	// known beforehand.
	endless bool
	gate    gate
	// ctx ends with the application.
	ctx context.Context
	end context.CancelFunc
	// parts are its goroutines.
	parts sync.WaitGroup

	mutex   sync.Mutex
	session string
	// token is that of the tenure that it acts in, 0 for none, and memory what is
	// stored, as of this tenure.
	token  uint64
	memory map[int]int
	// proven is until when it is sure to lead.
	proven time.Time
	// breach is what can't be if there is one coordinator at a time.
	breach error
}

// renewal is how often an application asks whether it still leads.
const renewal = 25 * time.Millisecond

func startApplication(ctx context.Context, t *agentcluster.Cluster, s *storage, agent string, life int, endless bool) *application {
	a := &application{troupe: t, storage: s, agent: agent, bearer: fmt.Sprintf("%s, life %d", agent, life), endless: endless}
	a.ctx, a.end = context.WithCancel(ctx)
	a.parts.Go(a.hold)
	a.parts.Go(a.renew)
	return a
}

// kill ends the application, wherever it is.
func (a *application) kill() { a.end() }

// hold holds a session open.
func (a *application) hold() {
	again := time.NewTicker(renewal)
	defer again.Stop()
	for a.ctx.Err() == nil {
		session := ""
		// Why it ended doesn't matter: whatever it was, the role is gone.
		_ = a.troupe.Session(a.ctx, a.agent, func(event agentcluster.SessionEvent) {
			if !a.gate.pass(a.ctx) {
				return
			}
			switch event.Kind {
			case "session":
				session = event.Session
				a.open(session)
			case "lead":
				a.lead(event.Token)
			case "stop":
				a.stop()
				// An agent that has just ended needn't be told.
				_ = a.troupe.Stopped(a.ctx, a.agent, session, event.Term)
			case "lost":
				a.stop()
			}
		})
		if !a.gate.pass(a.ctx) {
			return
		}
		a.stop()
		select {
		case <-again.C:
		case <-a.ctx.Done():
		}
	}
}

// open remembers the session, whose tenures are renewed from now on.
func (a *application) open(session string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.session = session
}

func (a *application) lead(token uint64) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	memory, err := a.storage.load(token, a.bearer)
	if err != nil {
		return // A later coordinator was faster.
	}
	a.token, a.memory, a.proven = token, memory, time.Time{}
}

// stop returns when nothing that the application does as coordinator is under
// way any more.
func (a *application) stop() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.token = 0
}

// renew proves again and again that the application still leads.
func (a *application) renew() {
	again := time.NewTicker(renewal)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-a.ctx.Done():
			return
		}
		if !a.gate.pass(a.ctx) || !a.leads() {
			continue
		}
		a.mutex.Lock()
		session := a.session
		a.mutex.Unlock()
		asked := time.Now()
		ctx, cancel := context.WithTimeout(a.ctx, 4*renewal)
		leader, err := a.troupe.Renew(ctx, a.agent, session)
		cancel()
		if err != nil || !a.gate.pass(a.ctx) {
			continue
		}
		a.mutex.Lock()
		if leader.Leading && leader.Token == a.token {
			a.proven = asked
			if leader.RemainingMillis != nil {
				a.proven = asked.Add(time.Duration(*leader.RemainingMillis) * time.Millisecond)
			} else if a.endless {
				a.proven = asked.Add(time.Hour)
			}
		}
		a.mutex.Unlock()
	}
}

// leads tells whether the application would serve clients, if it could prove
// that it may.
func (a *application) leads() bool {
	if a.ctx.Err() != nil {
		return false
	}
	// Whoever is frozen may hold the lock, and claims to lead.
	if !a.mutex.TryLock() {
		return true
	}
	defer a.mutex.Unlock()
	return a.token != 0
}

func (a *application) read(register int) (value int, err error) {
	if !a.gate.pass(a.ctx) {
		return 0, errNotLeading
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if !a.proof() {
		return 0, errNotLeading
	}
	if !a.gate.pass(a.ctx) {
		return 0, errDead
	}
	return a.memory[register], nil
}

func (a *application) write(register, value int) error {
	if !a.gate.pass(a.ctx) {
		return errNotLeading
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if !a.proof() {
		return errNotLeading
	}
	if !a.gate.pass(a.ctx) {
		return errDead
	}
	if err := a.storage.write(a.token, a.bearer, register, value); err != nil {
		if a.proof() && !a.endless {
			a.breach = fmt.Errorf("%s was fenced off at register %d although its lease still lasts %s", a.bearer, register, time.Until(a.proven))
		}
		return err
	}
	if !a.gate.pass(a.ctx) {
		return errDead
	}
	a.memory[register] = value
	return nil
}

func (a *application) verify() error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.breach
}

func (a *application) proof() bool {
	return a.token != 0 && time.Now().Before(a.proven) && a.ctx.Err() == nil
}

// gate is where an application stands still while it is frozen.
type gate struct {
	mutex sync.Mutex
	// closed is nil while the gate is open.
	closed chan struct{}
}

func (g *gate) freeze() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) thaw() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// pass waits while the gate is closed, and returns false if ctx ends.
func (g *gate) pass(ctx context.Context) bool {
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
