package agents

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// ledger is a group of agents with an application each, the storage that their
// coordinator guards, and clients.
type ledger struct {
	t       *testing.T
	ctx     context.Context
	troupe  *agentcluster.Cluster
	storage *storage
	history *history
	// name tells it from others in one test.
	name, mode string
	// register is the one that clients use now. Each fault has its own, so that
	// the checker has many short histories to look at instead of a long one.
	register atomic.Int64
	values   atomic.Int64
	// slowest is the longest that it took to recover.
	slowest time.Duration

	mutex        sync.Mutex
	applications map[string]*application
	// former are those that have ended.
	former []*application
	lives  int
	diary  []string
}

// timing is short, so that many faults fit into a minute. An application has
// longer to stop than a lease lasts.
var timing = agentcluster.Timing{HeartbeatMillis: 20, DrainMillis: 300}

const leaseMillis = 150

func openLedger(t *testing.T, mode string, agents int, policy string) *ledger {
	t.Helper()
	stable := 0
	if policy == "WhenStable" {
		stable = 1
	}
	group := agentcluster.Group{
		Safety:     &agentcluster.Safety{Mode: mode, LeaseMillis: leaseMillis},
		Preemption: &agentcluster.Preemption{Policy: policy, StableSeconds: &stable},
		Timing:     &timing,
	}
	l := &ledger{
		t: t, name: fmt.Sprintf("of %d, %s", agents, policy), mode: mode, troupe: agentcluster.Start(t, agentcluster.Options{Agents: agents, TLS: true, Group: group}),
		storage: newStorage(), history: newHistory(), applications: map[string]*application{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.ctx = ctx
	if err := l.troupe.Start(); err != nil {
		t.Fatal(err)
	}
	for _, name := range l.troupe.Names() {
		l.open(name)
	}
	var clients sync.WaitGroup
	clients.Go(l.visit)
	t.Cleanup(func() {
		cancel()
		clients.Wait()
		for _, a := range l.former {
			a.parts.Wait()
		}
		for _, a := range l.applications {
			a.parts.Wait()
		}
	})
	return l
}

// open starts an agent's application.
func (l *ledger) open(name string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.lives++
	if former := l.applications[name]; former != nil {
		l.former = append(l.former, former)
	}
	l.applications[name] = startApplication(l.ctx, l.troupe, l.storage, name, l.lives, l.mode == "Available")
}

func (l *ledger) application(name string) *application {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.applications[name]
}

// visit lets clients come in, at a steady pace: each asks one of those that
// claim to lead.
func (l *ledger) visit() {
	const pace = 4 * time.Millisecond
	// As many clients may wait for an answer of one application.
	const patient = 3
	var waiting sync.WaitGroup
	defer waiting.Wait()
	queues := map[string]chan struct{}{}
	for _, name := range l.troupe.Names() {
		queues[name] = make(chan struct{}, patient)
	}
	next := time.NewTicker(pace)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-l.ctx.Done():
			return
		}
		for _, name := range l.troupe.Names() {
			a := l.application(name)
			if !a.leads() {
				continue
			}
			select {
			case queues[name] <- struct{}{}:
				waiting.Go(func() {
					l.ask(a)
					<-queues[name]
				})
			default:
			}
		}
	}
}

// ask sends one request and puts it on record, unless it had no effect.
func (l *ledger) ask(a *application) {
	const writesOf = 4 // One request in four, whoever is asked.
	asked := request{register: int(l.register.Load()), at: a.agent}
	call := l.history.now()
	if number := int(l.values.Add(1)); rand.IntN(writesOf) == 0 {
		asked.write, asked.value = true, number
		err := a.write(asked.register, number)
		if err == nil {
			l.history.add(asked, number, call, l.history.now())
		} else if errors.Is(err, errDead) {
			l.history.add(asked, number, call, never)
		}
		return
	}
	if value, err := a.read(asked.register); err == nil {
		l.history.add(asked, value, call, l.history.now())
	}
}

// note writes something down that explains a failure.
func (l *ledger) note(format string, arguments ...any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.diary = append(l.diary, fmt.Sprintf("%s register %d: ", time.Duration(l.history.now()), l.register.Load())+fmt.Sprintf(format, arguments...))
}

func (l *ledger) story() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return strings.Join(l.diary, "\n")
}

// leading is whose application claims to lead, and somebody if nobody does.
func (l *ledger) leading(rng *rand.Rand) string {
	names := l.troupe.Names()
	for _, at := range rng.Perm(len(names)) {
		if l.application(names[at]).leads() {
			return names[at]
		}
	}
	return names[rng.IntN(len(names))]
}

// recover returns when the ledger is in use again, which must be soon after all
// faults have been mended.
func (l *ledger) recover() error {
	const limit = 20 * time.Second
	begun := time.Now()
	defer func() { l.slowest = max(l.slowest, time.Since(begun)) }()
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	_, before := l.storage.counts()
	if _, err := l.troupe.AwaitCoordinator(ctx); err != nil {
		return err
	}
	return agentcluster.Await(ctx, func(context.Context) error {
		if _, now := l.storage.counts(); now == before {
			return errors.New("the coordinator's application accepts no write")
		}
		return nil
	})
}

func (l *ledger) verify() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	err := errors.Join(l.storage.verify(), l.history.verify())
	for _, a := range l.former {
		err = errors.Join(err, a.verify())
	}
	for _, a := range l.applications {
		err = errors.Join(err, a.verify())
	}
	return err
}
