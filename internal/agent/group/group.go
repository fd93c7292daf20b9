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
	"github.com/conclave-dev/conclave/internal/agent/mesh"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/wire"
)

// mailMax bounds what waits for the group. Peers that send more have to wait.
const mailMax = 1024

// Post carries letters to peers.
type Post interface {
	Send(to string, parcel mesh.Parcel) bool
	Connected(name string) bool
	// RoundTrip is how long the way to a peer and back takes at most, 0 if that
	// isn't known.
	RoundTrip(name string) time.Duration
}

// Config is what a group starts from.
type Config struct {
	Self string
	// Life tells this life of the agent from its other ones.
	Life  uint32
	Clock *clock.Clock
	Group config.Group
	Post  Post
	Meter Meter
	Log   *slog.Logger
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
	// promised is the latest moment until which somebody who only asked, and whom
	// nobody can tell to stop, may take this process for the coordinator.
	promised atomic.Int64
	// heardOf is how many members there have ever been, and nobody.
	heardOf atomic.Int64
	feed    *feed

	// What follows belongs to the goroutine of run.

	machine election.Machine
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

	observer observer
	// notices go out when all can see what they are about.
	notices []func()
}

// snapshot is what the group knew after its last step.
type snapshot struct {
	leader Leader
	until  election.Tick
}

// New starts to take part. The list of the group's config is the one to start
// from, and complete.
func New(cfg Config) (*Group, error) {
	g := &Group{
		cfg: cfg, mail: make(chan func(), mailMax), quit: make(chan struct{}), done: make(chan struct{}),
		feed: newFeed(rand.Uint32()), names: newNames(), charter: charter(cfg.Group.Safety),
		dissenters: map[string]string{}, app: newApplication(cfg.Group),
	}
	g.self = g.names.add(cfg.Self)
	roster, err := g.names.roster(cfg.Group.List)
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", cfg.Group.Name, err)
	}
	g.enter(cfg.Group.List, roster)
	if g.machine, err = g.newMachine(); err != nil {
		return nil, fmt.Errorf("group %s: %w", cfg.Group.Name, err)
	}
	g.observer = newObserver(cfg.Meter, cfg.Clock.Now())
	g.armed = election.Never
	g.timer = time.NewTimer(time.Hour)
	g.reconsider()
	g.settle()
	go g.run()
	if cfg.Group.Timing.Measured {
		go g.measure()
	}
	return g, nil
}

func (g *Group) newMachine() (election.Machine, error) {
	group := g.cfg.Group
	algorithm, err := catalog.Find(group.Algorithm)
	if err != nil {
		return nil, err
	}
	ticks := func(d time.Duration) election.Tick { return election.Tick(d) }
	timing := group.Timing
	return office.New(office.Config{
		Config: election.Config{
			Self: g.self, Roster: g.roster, Orderly: true,
			Timing: waits(timing.Reply),
		},
		Elect: algorithm.New, Mode: group.Safety.Mode, Lease: ticks(group.Safety.Lease),
		Heartbeat: ticks(timing.Heartbeat), Patience: ticks(timing.Patience), Stagger: ticks(timing.Stagger),
		Policy: group.Preemption.Policy, Stable: ticks(group.Preemption.Stable), Drain: ticks(timing.Drain),
		Clock: g.cfg.Clock.Terms(), Life: g.cfg.Life, Fresh: true, Start: g.cfg.Clock.Now(),
	})
}

// enter goes over to a list, also in what others read.
func (g *Group) enter(list config.List, roster *election.Roster) {
	g.list, g.roster, g.digest = list, roster, digest(list, g.cfg.Group.Safety.Mode)
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

// Drain is how long the application may take to stop.
func (g *Group) Drain() time.Duration { return g.cfg.Group.Timing.Drain }

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

// arm sets the timer, if it would fire too late. One that fires too early does
// no harm, and leaving it alone is cheaper.
func (g *Group) arm() {
	if due := g.machine.Deadline(); due < g.armed {
		g.armed = due
		g.timer.Reset(max(0, g.cfg.Clock.Until(due)))
	}
}

// publish shows what the Machine knows now.
func (g *Group) publish() {
	status := g.machine.Status()
	s := &snapshot{until: status.Until}
	s.leader = Leader{
		Group: g.cfg.Group.Name, Self: g.cfg.Self, Coordinator: g.names.of(status.Coordinator), Term: uint64(status.Term),
	}
	if status.Coordinator != election.None {
		s.leader.Priority = uint32(g.roster.Priority(status.Coordinator))
	}
	if status.Token != 0 && !g.app.stopping {
		s.leader.Leading, s.leader.Token = true, uint64(status.Token)
	}
	if old := g.now.Load(); old != nil && old.leader == s.leader && old.until == s.until {
		return
	}
	g.now.Store(s)
	g.feed.append(s.leader)
}

// Ask is Leader for somebody who will act on it until the time that remains has
// passed, and whom nobody can tell to stop: no successor starts before.
func (g *Group) Ask() Leader {
	leader := g.Leader()
	if leader.RemainingMillis == nil {
		return leader
	}
	until := int64(g.cfg.Clock.Now()) + *leader.RemainingMillis*int64(time.Millisecond)
	for {
		before := g.promised.Load()
		if before >= until || g.promised.CompareAndSwap(before, until) {
			break
		}
	}
	if now := g.Leader(); !now.Leading || now.Token != leader.Token {
		return now // It was told to stop meanwhile, and what was promised may have come too late.
	}
	return leader
}

// Leader says who leads at this moment.
func (g *Group) Leader() Leader {
	s := g.now.Load()
	leader := s.leader
	if !leader.Leading || s.until == election.Never {
		return leader
	}
	remaining := g.cfg.Clock.Until(s.until)
	if remaining <= 0 { // The Machine will notice, too, when it gets to it.
		leader.Leading, leader.Token, leader.Coordinator, leader.Priority = false, 0, "", 0
		return leader
	}
	millis := remaining.Milliseconds()
	leader.RemainingMillis = &millis
	return leader
}

// Status says all that is known.
func (g *Group) Status(ctx context.Context) (Status, error) {
	var status Status
	err := g.ask(ctx, func() {
		now := g.machine.Status()
		status = Status{
			Electing: now.Electing, Algorithm: g.cfg.Group.Algorithm, Safety: g.cfg.Group.Safety.Mode.String(),
			Version: g.list.Version,
		}
		addresses := map[string]string{}
		for _, m := range g.list.Members {
			addresses[m.Name] = m.Address
		}
		for _, row := range g.machine.Rows(nil) {
			name := g.names.of(row.ID)
			status.Processes = append(status.Processes, Process{
				Name: name, Priority: uint32(row.Priority), Status: row.Status.String(), Address: addresses[name],
				Connected: name == g.cfg.Self || g.cfg.Post.Connected(name),
			})
		}
	})
	status.Leader = g.Leader()
	return status, err
}

// Letter takes what a peer has written. A letter that names more than there are
// isn't kept until its turn comes: a thousand of them would take much memory.
func (g *Group) Letter(from string, letter *wire.Letter) {
	if int64(len(letter.List)) > g.heardOf.Load()+newcomersMax {
		letter = &wire.Letter{
			Kind: letter.Kind, Version: letter.Version, Digest: letter.Digest, Charter: letter.Charter, Subject: tooMany,
		}
	}
	_ = g.do(func() { g.receive(from, letter) }) // A group that was left needs no letters.
}

// newcomersMax is how many names of a newer list a letter may have. tooMany is
// the name of nobody.
const (
	newcomersMax = 64
	tooMany      = "?"
)

func (g *Group) receive(from string, letter *wire.Letter) {
	g.cfg.Meter.Received(letter.Kind)
	if !g.agrees(from, letter) {
		g.cfg.Meter.Refused()
		return
	}
	m, known := g.names.message(from, letter, g.self)
	if !known {
		g.cfg.Meter.Refused()
		g.cfg.Log.Debug("a letter names somebody who isn't on the member list", "peer", from)
		return
	}
	g.step(election.Input{Kind: election.Receive, Message: m})
}

// send puts a message into the post.
func (g *Group) send(m *election.Message) {
	if m.To == g.self {
		g.step(election.Input{Kind: election.Receive, Message: *m})
		return
	}
	g.cfg.Meter.Sent(m.Kind)
	letter := g.names.letter(m)
	letter.Group, letter.Version, letter.Digest, letter.Charter = g.cfg.Group.Name, g.list.Version, g.digest, g.charter
	parcel := mesh.Parcel{Frame: wire.Append(nil, wire.Frame{Letter: letter})}
	returned := *m
	if m.Kind.Counts() {
		parcel.Back = func() { _ = g.do(func() { g.undelivered(returned) }) }
	}
	if !g.cfg.Post.Send(g.names.of(m.To), parcel) {
		g.undelivered(returned)
	}
}

func (g *Group) undelivered(m election.Message) {
	if m.Kind.Counts() { // A sign of life that is lost is one: the next will follow.
		g.step(election.Input{Kind: election.Undelivered, Message: m})
	}
}

// Gone tells that one life of a peer has ended.
func (g *Group) Gone(peer string, life uint32) {
	_ = g.do(func() {
		if id, known := g.names.ids[peer]; known {
			g.step(election.Input{Kind: election.Gone, Peer: id, Life: life})
		}
	})
}

// Adopt goes over to another member list. It must have been kept on disk before:
// see package lists.
func (g *Group) Adopt(ctx context.Context, list config.List) error {
	var failed error
	err := g.ask(ctx, func() {
		roster, err := g.names.roster(list)
		if err != nil {
			failed = err
			return
		}
		g.enter(list, roster)
		g.step(election.Input{Kind: election.Adopt, Roster: roster})
	})
	if err != nil {
		return err
	}
	return failed
}
