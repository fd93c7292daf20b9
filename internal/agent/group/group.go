// Package group runs the election of one group. It passes inputs to the machine of package office, and carries out its
// output. The inputs are the time, the messages of peers, and the state of the application. The package decides nothing
// about the election.
//
// # Order of steps
//
// The goroutine of Group.run does all of this, one input after the other:
//
//	input -> Machine.Step -> store memory -> record the step -> publish state, notify application -> send messages
//
// The machine grants and claims only terms that are reserved on the disk. Another goroutine stores a reservation, long
// before it is needed: see reservation.
//
// The order matters. A process that is killed remembers each grant that another process, or its application, relies on.
// A message may give up the office or grant it to another process. Because it is sent last, no other process can become
// coordinator before the application of this one could see that it has lost the office.
//
// # Goroutines and waits
//
// All exported methods may be called from any goroutine. They enqueue a function for the goroutine of run; Leader and
// Watcher.Next only read published state. The inbox holds 1024 functions; a caller that finds it full waits, with two
// exceptions: messages are dropped, and PeerEnded and PeerRefused don't wait, because their callers serve the other
// groups, too. Methods with a context return when it ends. Methods that hand over the office wait for at most the drain
// timeout plus 1 s.
//
// The goroutine of run never waits for the application or for a peer. It calls OnReport and the log
// synchronously, so they must not block: see package asynclog. AwaitRoundTrip shows whether they do. If they delay it
// beyond the lease, Leader no longer reports this process as coordinator, because it compares the lease with the clock
// itself.
//
// # What is not guaranteed
//
// Messages may be lost. One that is reported as undelivered may have arrived. The application has to stop by itself
// when its session reports Lost, or when the remaining time that LeaderWithPromise returned is over. Only fencing
// tokens protect a resource from an application that doesn't.
package group

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/memory"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// inboxMax bounds the functions that wait for the goroutine of run.
const inboxMax = 1024

// Transport sends messages to peers.
type Transport interface {
	Send(to string, out transport.Outgoing) bool
	Connected(name string) bool
	// RoundTrip returns an upper estimate of the round-trip time to a peer, or 0 if it is unknown.
	RoundTrip(name string) time.Duration
}

// Timer is an alarm.Timer.
type Timer interface {
	Set(at election.Tick)
	Stop()
}

// Config configures a Group.
type Config struct {
	Self string
	// Life is the incarnation of the agent.
	Life  uint32
	Clock *clock.Clock
	// NewTimer returns a timer that calls a function, which doesn't block.
	NewTimer  func(call func()) Timer
	Group     config.Group
	Transport Transport
	Metrics   *Metrics
	Log       *slog.Logger
	// OnReport, if it isn't nil, is called by the goroutine of run with each report that differs from the previous one.
	OnReport func(control.Report)
	// Problems, if it isn't nil, returns the problems of the agent that don't pass by themselves, for reports.
	Problems func() []string
	// Excluded is the initial state: see Exclude.
	Excluded bool
	// TraceFolder, if it isn't empty, is the folder for a trace of the machine: see package journal.
	TraceFolder string
	// Identity is that of the state directory. Joined: a process has voted in the group with this directory.
	Identity election.Identity
	Joined   bool
	// Reserved is the highest term that this agent may grant or claim, as its disk says, and Reserve stores a higher one,
	// with the identities of the peers that it has met under a version of the list. Peers are those of the present list.
	Reserved election.Term
	Peers    map[string]election.Identity
	Reserve  func(reserved election.Term, version uint32, peers map[string]election.Identity) error
	// LongestLease is the longest lease for which an earlier incarnation of this agent may have given a grant.
	LongestLease time.Duration
	// OutSince is since when this agent, including its earlier incarnations, hasn't been in the
	// group. It may be before the first tick.
	OutSince election.Tick
	// Claimed is the highest term in which this incarnation of the agent has claimed the office,
	// when it took part in the group before.
	Claimed election.Term
	// Memory stores the grants, and Remembered is what it had stored, nil if nothing. The
	// group closes Memory, unless New fails.
	Memory     *memory.File
	Remembered *memory.Record
}

// Group is an agent's participation in one election.
type Group struct {
	cfg     Config
	inbox   chan func()
	quit    chan struct{} // closed when the group is left
	done    chan struct{} // closed when run has returned
	timeout chan struct{}

	leaving sync.Once

	// published is the state after the last step.
	published atomic.Pointer[snapshot]
	problems  atomic.Pointer[problems]
	// refreshing is set when a new report is necessary: see Refresh.
	refreshing atomic.Bool
	// inForce is cfg.Group, except that its drain timeout may be longer: see reconfigure.
	inForce atomic.Pointer[config.Group]
	feed    *feed[Leader]

	// The fields below belong to the goroutine of run.

	machine      *office.Machine
	stored       remembered // in cfg.Memory
	reservation  reservation
	recorder     *journal.Recorder // nil if nothing is recorded
	journal      *journal.Ring
	names        *names
	self         election.ID
	list         memberlist.List
	roster       *election.Roster
	listDigest   uint64
	configDigest uint64
	peers        []string // the other members of list
	// mismatches has the peers whose configuration differs, or did so before.
	mismatches map[string]*mismatch
	// replaced: the operator has asked for the exclusion of this process. See CanRetire.
	replaced bool
	out      election.Output
	timer    Timer
	timerDue election.Tick
	// record is that of the last step.
	record journal.Record
	// measureDue is when round trips are measured again, for the reply timeout in force.
	measureDue   election.Tick
	replyInForce time.Duration
	app          application
	// ineligibleSince is when the reason began for which this process may not be elected.
	ineligibleSince time.Time
	recovery        recovery
	// promisedUntil is the latest time until which a caller of LeaderWithPromise may
	// act as coordinator. Such a caller can't be asked to stop.
	promisedUntil election.Tick

	observer observer
	answers  answers
	reporter reporter
	// notices are called once the state that they are about is published.
	notices []func()
}

// New joins a group. The member list in the configuration must be complete.
func New(cfg Config) (*Group, error) {
	g := &Group{
		cfg: cfg, inbox: make(chan func(), inboxMax), quit: make(chan struct{}), done: make(chan struct{}),
		timeout: make(chan struct{}, 1),
		feed:    newFeed[Leader](), names: newNames(), configDigest: configDigest(cfg.Group),
		journal: new(journal.Ring), mismatches: map[string]*mismatch{}, app: newApplication(cfg.Group),
		answers: answers{cfg.Metrics.Answer.observe, map[election.ID]answer{}},
	}
	g.app.excluded = cfg.Excluded
	g.inForce.Store(&cfg.Group)
	g.reservation.met = maps.Clone(cfg.Peers)
	g.self = g.names.add(cfg.Self)
	roster, err := election.RosterOf(&cfg.Group.List, g.names.add)
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", cfg.Group.Name, err)
	}
	g.useList(cfg.Group.List, roster)
	if g.machine, err = g.newMachine(); err != nil {
		return nil, fmt.Errorf("group %s: %w", cfg.Group.Name, err)
	}
	g.storeMemory()
	g.record = journal.Record{Status: g.machine.Status(), Deadline: g.machine.Deadline()}
	g.observer = newObserver(cfg.Metrics, g.self, cfg.Clock.Now())
	g.measureDue, g.replyInForce = cfg.Clock.Now()+election.Tick(measureInterval), cfg.Group.Timing.ReplyTimeout
	g.timerDue = election.Never
	g.timer = cfg.NewTimer(g.timedOut)
	if !roster.Has(g.self) {
		g.step(election.Input{Kind: election.Adopt, Roster: roster})
	}
	g.updateEligibility()
	g.applyOutput()
	go g.run()
	return g, nil
}

func (g *Group) newMachine() (*office.Machine, error) {
	group := g.cfg.Group
	algorithm, err := catalog.Find(group.Algorithm)
	if err != nil {
		return nil, err
	}
	roster := g.roster
	if !roster.Has(g.self) && roster.Previous != nil {
		// This member was removed from the list, and still counts for the majority of the previous list that has to adopt it.
		// It starts with the previous list, and adopts the current one before anything else.
		roster = roster.Previous
	}
	config := office.Config{
		Config: election.Config{
			Self: g.self, Roster: roster, Timing: electionTiming(group.Timing.ReplyTimeout), Term: g.cfg.Claimed,
		},
		NewElection: algorithm.New, AlignHeartbeats: true,
		Reserved: g.cfg.Reserved, Life: g.cfg.Life,
		LongestEarlierLease: election.Tick(g.cfg.LongestLease), Start: g.cfg.Clock.Now(),
	}
	config.Memory, config.Tenures = g.remembered()
	if group.UID != "" {
		config.Identity = g.cfg.Identity
	}
	if g.cfg.Joined {
		config.Forgotten = g.cfg.Reserved
	}
	// A list in a file names no identities. So the previous directory of this agent may have been lost just now.
	config.MemoryLost = g.cfg.Joined || group.UID == ""
	config.EarlierEnded = config.Start - g.cfg.OutSince
	config.Apply(officeSettings(&group))
	machine, err := office.New(config)
	if err == nil && g.cfg.TraceFolder != "" {
		err = g.startRecorder(config)
	}
	return machine, err
}

// useList switches to a member list.
func (g *Group) useList(list memberlist.List, roster *election.Roster) {
	nextVersion := list.Version != g.list.Version && g.list.Version != 0
	if nextVersion {
		g.reservation.met, g.reservation.unsaved = nil, false
	}
	g.list, g.roster, g.listDigest = list, roster, listDigest(list, g.cfg.Group.Safety.Mode)
	g.dropMismatches(nextVersion)
	clear(g.answers.last)
	g.peers = nil
	for _, m := range list.Members {
		if m.Name != g.cfg.Self {
			g.peers = append(g.peers, m.Name)
		}
	}
}

// Name returns the name of the group.
func (g *Group) Name() string { return g.cfg.Group.Name }

// Claimed returns the highest term in which the agent has claimed the office, after Leave.
func (g *Group) Claimed() election.Term { return g.machine.ClaimedTerm() }

// DrainTimeout returns how long the application may take to stop.
func (g *Group) DrainTimeout() time.Duration { return g.inForce.Load().Timing.DrainTimeout }

// Lease returns the lease of the settings, or 0 in mode Available.
func (g *Group) Lease() time.Duration {
	safety := &g.inForce.Load().Safety
	if safety.Mode == office.Available {
		return 0
	}
	return safety.Usual()
}

func (g *Group) run() {
	defer close(g.done)
	for {
		g.reserve()
		select {
		case act := <-g.inbox:
			act()
		case <-g.timeout:
			g.timerDue = election.Never
			g.step(election.Input{Kind: election.TimePassed})
		case <-g.quit:
			g.timer.Stop()
			g.recorder.Close()
			g.feed.close(ErrClosed)
			g.app.close()
			g.cfg.Memory.Close()
			return
		}
		g.adjustTiming()
		g.recoverIfReachable()
		g.applyOutput()
	}
}

// timedOut is called when the timer expires. It doesn't block, even if the group does: the
// other groups share the goroutine.
func (g *Group) timedOut() {
	select {
	case g.timeout <- struct{}{}:
	default: // The goroutine of run hasn't received the last value yet.
	}
}

// enqueue passes a function to the goroutine of run, and doesn't wait for it.
func (g *Group) enqueue(act func()) error {
	select {
	case g.inbox <- act:
		return nil
	case <-g.quit:
		return ErrClosed
	}
}

// tryEnqueue is like enqueue, but returns false instead of waiting if the inbox is full.
func (g *Group) tryEnqueue(act func()) bool {
	select {
	case g.inbox <- act:
		return true
	default:
		return false
	}
}

// enqueueWithoutWait is like enqueue for callers that must not wait if the inbox is full.
func (g *Group) enqueueWithoutWait(act func()) {
	if !g.tryEnqueue(act) {
		go func() { _ = g.enqueue(act) }() // A group that was left doesn't need to know.
	}
}

// step passes an input to the machine, and collects its output.
func (g *Group) step(in election.Input) {
	in.Now = g.cfg.Clock.Now()
	events, sent := len(g.out.Events), len(g.out.Send)
	g.machine.Step(in, &g.out)
	g.storeMemory()
	g.observe(journal.Record{Input: in, Send: g.out.Send[sent:], Events: g.out.Events[events:]})
}

// applyOutput carries out the output of the machine, including that of the steps that result from it.
func (g *Group) applyOutput() {
	for len(g.out.Events) > 0 || len(g.out.Send) > 0 {
		out := g.out
		g.out = election.Output{}
		changed := len(out.Events) > 0
		for _, e := range out.Events {
			g.handleEvent(e)
		}
		g.publish()
		g.runNotices()
		for i := range out.Send {
			m := &out.Send[i]
			g.send(m, !changed && renews(m))
		}
	}
	g.publish()
	g.runNotices()
	g.tellElected()
	g.report()
	g.setTimer()
}

// runNotices notifies the application, and the callers of call.
func (g *Group) runNotices() {
	notices := g.notices
	g.notices = nil
	for _, notice := range notices {
		notice()
	}
}

// setTimer sets the timer to the deadline of the machine. Early wakeups would be
// harmless, but cost more than setting the timer.
func (g *Group) setTimer() {
	if due := g.record.Deadline; due != g.timerDue {
		g.timerDue = due
		g.timer.Set(due)
	}
}

// call runs a function on the goroutine of run, and waits until its consequences
// are published. If it returns an error, the function may still run later.
func (g *Group) call(ctx context.Context, act func()) error {
	acted := make(chan struct{})
	request := func() {
		act()
		g.notices = append(g.notices, func() { close(acted) })
	}
	select {
	case g.inbox <- request:
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

// try is call for a function that can fail.
func (g *Group) try(ctx context.Context, act func() error) error {
	var failed error
	if err := g.call(ctx, func() { failed = act() }); err != nil {
		return err // The function may still set failed.
	}
	return failed
}

// AwaitRoundTrip returns when the goroutine of run has carried out everything that was enqueued before.
func (g *Group) AwaitRoundTrip(ctx context.Context) error { return g.call(ctx, func() {}) }

// remembered is what the agent has to remember when it is killed.
type remembered struct {
	grants  grants.Memory
	tenures office.TenureRecord
}

// remembered returns what earlier incarnations granted, nil if that is unknown, and their tenures.
func (g *Group) remembered() (*grants.Memory, office.TenureRecord) {
	r := g.cfg.Remembered
	if r == nil {
		return nil, office.TenureRecord{}
	}
	behind := -election.Tick(g.cfg.Clock.Origin())
	tenures := r.Tenures.Shifted(behind)
	if g.cfg.Group.Safety.Mode == office.Available {
		return nil, tenures
	}
	m := r.Shifted(behind)
	if r.Holder != "" { // It need not be on the list any more.
		m.Holder.ID = g.names.add(r.Holder)
	}
	return &m, tenures
}

// storeMemory stores what the machine has to remember, if that has changed. It is called
// after each step, before anything happens that relies on the step.
func (g *Group) storeMemory() {
	m := remembered{g.machine.Memory(), g.machine.Tenures()}
	if m == g.stored {
		return
	}
	g.stored = m
	ahead := election.Tick(g.cfg.Clock.Origin())
	record := memory.Record{
		Memory: m.grants.Shifted(ahead), Holder: g.names.name(m.grants.Holder.ID), Tenures: m.tenures.Shifted(ahead),
	}
	if err := g.cfg.Memory.Save(&record); err != nil {
		g.cfg.Log.Error("cannot remember grants any more: after a restart, this agent waits for the lease", "error", err)
	}
}
