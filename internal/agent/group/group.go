// Package group runs the Machine of one group: it brings it the time, what
// arrives and what the application does, and carries out what it says. It
// decides nothing about an election.
//
// All of that is done by one goroutine, in the order
//
//	an input  ->  the Machine  ->  what is published and told  ->  what is sent
//
// so that nobody else can have become coordinator before this agent's
// application could see that it no longer is.
package group

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// mailMax bounds what waits for the group. Peers that send more have to wait.
const mailMax = 1024

// Transport carries letters to peers.
type Transport interface {
	Send(to string, parcel transport.Outgoing) bool
	Connected(name string) bool
	// RoundTrip is how long the way to a peer and back takes at most, 0 if that
	// isn't known.
	RoundTrip(name string) time.Duration
}

// Config is what a group starts from.
type Config struct {
	Self string
	// Life tells this life of the agent from its other ones.
	Life      uint32
	Clock     *clock.Clock
	Group     config.Group
	Transport Transport
	Metrics   Metrics
	Log       *slog.Logger
	// OnReport, if it isn't nil, is called with what the group knows whenever that has
	// changed, by the group's goroutine. Problems, if it isn't nil, is why the agent
	// isn't ready.
	OnReport func(control.Report)
	Problems func() []string
	// Excluded: see Exclude.
	Excluded bool
	// LongestLease is the longest lease for which this agent may have granted in the
	// group before.
	LongestLease time.Duration
}

// Group is one election that the agent takes part in.
type Group struct {
	cfg  Config
	mail chan func()
	quit chan struct{} // closed when the group is left
	done chan struct{} // closed when nothing runs any more

	leaving sync.Once

	now atomic.Pointer[snapshot]
	// peers are the other members of the list in force.
	peers atomic.Pointer[[]string]
	// problems are why peers aren't listened to.
	problems atomic.Pointer[[]string]
	// heardOf is how many members there have ever been, and nobody.
	heardOf atomic.Int64
	feed    *feed

	// What follows belongs to the goroutine of run.

	machine *office.Machine
	names   *names
	self    election.ID
	list    config.List
	roster  *election.Roster
	digest  uint64
	charter uint64
	// dissenters are peers that aren't listened to, and why.
	dissenters map[string]string
	out        election.Output
	timer      *time.Timer
	armed      election.Tick
	app        application
	// promised is the latest moment until which somebody who only asked, and whom
	// nobody can tell to stop, may take this process for the coordinator.
	promised election.Tick

	observer observer
	reporter reporter
	// notices go out when all can see what they are about.
	notices []func()
}

// New starts to take part. The list of the group's config is the one to start
// from, and complete.
func New(cfg Config) (*Group, error) {
	g := &Group{
		cfg: cfg, mail: make(chan func(), mailMax), quit: make(chan struct{}), done: make(chan struct{}),
		feed: newFeed(rand.Uint32()), names: newNames(), charter: charter(cfg.Group),
		dissenters: map[string]string{}, app: newApplication(cfg.Group),
	}
	g.app.withheld = cfg.Excluded
	g.self = g.names.add(cfg.Self)
	roster, err := g.names.roster(cfg.Group.List)
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", cfg.Group.Name, err)
	}
	g.enter(cfg.Group.List, roster)
	if g.machine, err = g.newMachine(); err != nil {
		return nil, fmt.Errorf("group %s: %w", cfg.Group.Name, err)
	}
	g.observer = newObserver(cfg.Metrics, cfg.Clock.Now())
	g.armed = election.Never
	g.timer = time.NewTimer(time.Hour)
	if !roster.Has(g.self) {
		g.step(election.Input{Kind: election.Adopt, Roster: roster})
	}
	g.reconsider()
	g.settle()
	go g.run()
	if cfg.Group.Timing.Measured {
		go g.measure()
	}
	return g, nil
}

func (g *Group) newMachine() (*office.Machine, error) {
	group := g.cfg.Group
	algorithm, err := catalog.Find(group.Algorithm)
	if err != nil {
		return nil, err
	}
	ticks := func(d time.Duration) election.Tick { return election.Tick(d) }
	timing := group.Timing
	roster := g.roster
	if !roster.Has(g.self) && roster.Previous != nil {
		// It was taken off the list, and still has a say in whether that counts. It
		// starts as what it was, and goes over to the list before anything else.
		roster = roster.Previous
	}
	return office.New(office.Config{
		Config: election.Config{
			Self: g.self, Roster: roster, Timing: waits(timing.ReplyTimeout),
		},
		NewElection: algorithm.New, Mode: group.Safety.Mode, Lease: ticks(group.Safety.Lease),
		Heartbeat: ticks(timing.Heartbeat), SuspicionTimeout: ticks(timing.SuspicionTimeout), Stagger: ticks(timing.Stagger),
		Policy: group.Preemption.Policy, StablePeriod: ticks(group.Preemption.Stable), DrainTimeout: ticks(timing.DrainTimeout),
		Clock: g.cfg.Clock.TermClock(), Life: g.cfg.Life, MemoryLost: true, LongestEarlierLease: ticks(g.cfg.LongestLease), Start: g.cfg.Clock.Now(),
	})
}

// enter goes over to a list, also in what others read.
func (g *Group) enter(list config.List, roster *election.Roster) {
	g.list, g.roster, g.digest = list, roster, digest(list, g.cfg.Group.Safety.Mode)
	g.reporter.stale = true
	g.forgive()
	var peers []string
	for _, m := range list.Members {
		if m.Name != g.cfg.Self {
			peers = append(peers, m.Name)
		}
	}
	g.peers.Store(&peers)
	g.heardOf.Store(int64(len(g.names.byID)))
}

// Name is the group's name.
func (g *Group) Name() string { return g.cfg.Group.Name }

// DrainTimeout is how long the application may take to stop.
func (g *Group) DrainTimeout() time.Duration { return g.cfg.Group.Timing.DrainTimeout }

func (g *Group) run() {
	defer close(g.done)
	for {
		select {
		case act := <-g.mail:
			act()
		case <-g.timer.C:
			g.armed = election.Never
			g.step(election.Input{Kind: election.TimePassed})
		case <-g.quit:
			g.timer.Stop()
			g.feed.close()
			g.app.close()
			return
		}
		g.settle()
	}
}

// do has the group's goroutine act, and doesn't wait for it.
func (g *Group) do(act func()) error {
	select {
	case g.mail <- act:
		return nil
	case <-g.quit:
		return ErrClosed
	}
}

// ask has the group's goroutine act, and waits until what follows is settled.
func (g *Group) ask(ctx context.Context, act func()) error {
	acted := make(chan struct{})
	request := func() {
		act()
		g.notices = append(g.notices, func() { close(acted) })
	}
	select {
	case g.mail <- request:
	case <-ctx.Done():
		return ctx.Err()
	case <-g.quit:
		return ErrClosed
	}
	select {
	case <-acted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-g.done:
		return ErrClosed
	}
}

// step gives the Machine an input.
func (g *Group) step(in election.Input) {
	in.Now = g.cfg.Clock.Now()
	told := len(g.out.Events)
	g.machine.Step(in, &g.out)
	g.observer.observe(&in, g.self, g.machine.Status().Coordinator, g.out.Events[told:])
}

// settle carries out what the Machine said, and what follows from that.
func (g *Group) settle() {
	for len(g.out.Events) > 0 || len(g.out.Send) > 0 {
		out := g.out
		g.out = election.Output{}
		for _, e := range out.Events {
			g.told(e)
		}
		g.publish()
		g.notify()
		for i := range out.Send {
			g.send(&out.Send[i])
		}
	}
	g.publish()
	g.notify()
	g.report()
	g.arm()
}

// notify tells the application and others here what they wait for.
func (g *Group) notify() {
	notices := g.notices
	g.notices = nil
	for _, notice := range notices {
		notice()
	}
}

// arm sets the timer. One that is early does no harm, but to be woken costs more
// than to set it. It is a new one each time: for one that is set to a later
// moment, Go's runtime still wakes the process at the earlier one.
func (g *Group) arm() {
	if due := g.machine.Deadline(); due != g.armed {
		g.armed = due
		g.timer.Stop()
		g.timer = time.NewTimer(max(0, g.cfg.Clock.Until(due)))
	}
}

// Adopt goes over to another member list. It must have been kept on disk before:
// see package lists.
func (g *Group) Adopt(ctx context.Context, list config.List, from config.Provenance) error {
	var failed error
	err := g.ask(ctx, func() {
		roster, err := g.names.roster(list)
		if err != nil {
			failed = err
			return
		}
		g.cfg.Group.Provenance = from
		g.enter(list, roster)
		g.step(election.Input{Kind: election.Adopt, Roster: roster})
	})
	if err != nil {
		return err
	}
	return failed
}
