package group

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// cluster is the groups of several agents, with a network that loses no messages of members that aren't isolated.
type cluster struct {
	t *testing.T

	mu     sync.Mutex
	groups map[string]*Group
	lives  map[string]uint32 // of the processes that run: others have ended, although they may still compute
	cut    map[string]bool
	// roundTrip is the measured round-trip time to report.
	roundTrip time.Duration
	// latency is how long a message takes. With 0, messages of two members can arrive in any order.
	latency time.Duration
	// outFor is for how long members have not been in the group when they join it.
	outFor time.Duration
	// disks are the members' state directories.
	disks map[string]*disk
	// tune, if it isn't nil, changes the configuration of each member.
	tune func(*Config)
}

// disk is the state directory of a member in a group.
type disk struct {
	mu       sync.Mutex
	reserved election.Term
	failure  error
}

// mount lets the process of a member use its disk, on which its list is stored.
func (c *cluster) mount(cfg *Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.disks[cfg.Self]
	if d == nil {
		d = &disk{}
		c.disks[cfg.Self] = d
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	cfg.Joined = d.reserved > 0
	d.reserved = max(d.reserved, election.FirstTerm(cfg.Group.List.Version)+election.Block)
	cfg.Reserved, cfg.Reserve = d.reserved, d.reserve
}

func (d *disk) reserve(reserved election.Term, _ uint32, _ map[string]election.Identity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure == nil {
		d.reserved = max(d.reserved, reserved)
	}
	return d.failure
}

// link connects one process of a member to the others.
type link struct {
	cluster *cluster
	name    string
	life    uint32
}

// receiver returns the group that receives messages of this process to a member, or nil if it is unknown or one of the
// two is isolated.
func (l link) receiver(to string) *Group {
	c := l.cluster
	if c.lives[l.name] != l.life || c.cut[l.name] || c.cut[to] {
		return nil
	}
	return c.groups[to]
}

func (l link) Send(to string, out transport.Outgoing) bool {
	l.cluster.mu.Lock()
	g, latency := l.receiver(to), l.cluster.latency
	l.cluster.mu.Unlock()
	if g == nil {
		return false
	}
	message := messageIn(l.cluster.t, out)
	go func() { // Send must not block; messages may overtake each other.
		time.Sleep(latency)
		l.deliver(to, message)
	}()
	return true
}

// messageIn returns the message of a frame.
func messageIn(t *testing.T, out transport.Outgoing) *wire.Message {
	size, err := wire.ReadSize(bytes.NewReader(out.Frame), wire.MaxFrame)
	expect.Succeed(t, err)
	frame, err := wire.Parse(out.Frame[len(out.Frame)-size:])
	expect.Succeed(t, err)
	return frame.Message
}

// deliver passes a message to a member unless one of the two is isolated by now: when a process is reported as ended, a
// member has received all of its messages.
func (l link) deliver(to string, message *wire.Message) {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	if g := l.receiver(to); g != nil {
		g.ReceiveMessage(transport.Sender{Name: l.name}, message)
	}
}

func (l link) Connected(to string) bool {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	return !l.cluster.cut[to]
}

func (l link) RoundTrip(string) time.Duration {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	return l.cluster.roundTrip
}

func emptyCluster(t *testing.T) *cluster {
	return &cluster{
		t: t, groups: map[string]*Group{}, lives: map[string]uint32{}, cut: map[string]bool{}, disks: map[string]*disk{},
	}
}

// newCluster starts a group of members with these priorities and short timeouts.
func newCluster(t *testing.T, priorities map[string]int, change func(*config.Group)) *cluster {
	t.Helper()
	return newTunedCluster(t, priorities, func(*Config) {}, change)
}

// newTunedCluster is like newCluster, and changes the configuration of each member, too.
func newTunedCluster(t *testing.T, priorities map[string]int, tune func(*Config),
	changes ...func(*config.Group),
) *cluster {
	t.Helper()
	cluster := emptyCluster(t)
	cluster.tune = tune
	t.Cleanup(func() { time.Sleep(cluster.latency) }) // The last messages arrive.
	settings := testSettings()
	for _, name := range slices.Sorted(maps.Keys(priorities)) {
		settings.List.Members = append(settings.List.Members, memberlist.Member{
			Name: name, Priority: uint32(priorities[name]), Address: name + ":1",
		})
	}
	for _, change := range changes {
		if change != nil {
			change(&settings)
		}
	}
	for i, m := range settings.List.Members {
		cluster.join(m.Name, uint32(i+1), settings)
	}
	return cluster
}

// newLoneMember starts only one member of a list. The test sends the messages of the others.
func newLoneMember(t *testing.T, name string, change func(*config.Group)) *Group {
	t.Helper()
	cluster := emptyCluster(t)
	settings := testSettings()
	change(&settings)
	cluster.join(name, 1, settings)
	return cluster.group(name)
}

// testLease is the lease. A new cluster waits for it.
const testLease = 2 * time.Second

func testSettings() config.Group {
	return config.Group{
		Name: "ledger", Algorithm: "StatusTable",
		Safety:     config.Safety{Mode: office.Majority, Lease: testLease},
		Preemption: config.Preemption{Policy: office.Always},
		Timing: config.Timing{
			Heartbeat: 20 * time.Millisecond, SuspicionTimeout: time.Second, Stagger: 10 * time.Millisecond,
			ReplyTimeout: 10 * time.Millisecond, DrainTimeout: time.Minute,
		},
		List: memberlist.List{Version: 1},
	}
}

func (c *cluster) join(name string, life uint32, settings config.Group) {
	c.t.Helper()
	now := virtualClock()
	cfg := Config{
		Self: name, Life: life,
		Clock: now, NewTimer: func(call func()) Timer { return &virtualTimer{clock: now, call: call} }, Group: settings,
		Transport: link{c, name, life}, Metrics: &Metrics{},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), OutSince: now.Now() - election.Tick(c.outFor),
	}
	c.mount(&cfg)
	if c.tune != nil {
		c.tune(&cfg)
	}
	c.mu.Lock()
	c.lives[name] = life
	c.mu.Unlock()
	g, err := New(cfg)
	must.Succeed(c.t, err)
	c.t.Cleanup(func() {
		c.isolate(name)
		g.Leave(c.t.Context(), control.EndStopped) // The context has ended, so the office isn't handed over.
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups[name] = g
	delete(c.cut, name)
}

// inVirtualTime runs a test, in parallel with others, with a clock that advances when everything waits. So a busy
// machine changes nothing.
func inVirtualTime(t *testing.T, test func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// runInVirtualTime is inVirtualTime for a subtest.
func runInVirtualTime(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inVirtualTime(t, test) })
}

// virtualClock returns the clock of an agent. All agents of a test are on one machine.
func virtualClock() *clock.Clock {
	return clock.NewFrom(func() time.Duration { return time.Duration(time.Now().UnixNano()) })
}

// virtualTimer is a timer of such an agent.
type virtualTimer struct {
	clock *clock.Clock
	call  func()

	mu    sync.Mutex
	timer *time.Timer
}

func (t *virtualTimer) Set(at election.Tick) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
	if at != election.Never {
		t.timer = time.AfterFunc(t.clock.Until(at), t.call)
	}
}

func (t *virtualTimer) Stop() { t.Set(election.Never) }

func (c *cluster) isolate(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[name] = true
}

func (c *cluster) group(name string) *Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups[name]
}

// hold blocks the goroutine of a group.
func hold(t *testing.T, g *Group) (release func()) {
	t.Helper()
	held, released := make(chan struct{}), make(chan struct{})
	must.Succeed(t, g.enqueue(func() {
		close(held)
		<-released
	}))
	<-held
	return func() { close(released) }
}

// awaitFollowers waits until members follow a coordinator.
func (c *cluster) awaitFollowers(coordinator string, names ...string) {
	c.t.Helper()
	for _, name := range names {
		waitFor(c.t, c.group(name), "it follows "+coordinator, func(l Leader) bool { return l.Coordinator == coordinator })
	}
}

// waitFor waits for a state of a group.
func waitFor(t *testing.T, g *Group, what string, wanted func(Leader) bool) Leader {
	t.Helper()
	w, ctx := g.Watch(), testwait.Context(t)
	for {
		change, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("%s: waiting until %s: %v; got %+v", g.cfg.Self, what, err, g.Leader())
		}
		if wanted(change) {
			return change
		}
	}
}

// retryStepDown repeats a request while no member is ready to take over: the
// coordinator has to learn first which ones are.
func retryStepDown(ctx context.Context, request func(context.Context) error) error {
	for {
		if err := request(ctx); !errors.Is(err, ErrNoSuccessor) || ctx.Err() != nil {
			return err
		}
	}
}

// stepDownTo returns a request to step down in favor of a member.
func (g *Group) stepDownTo(to string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := g.StepDown(ctx, to)
		return err
	}
}

func isLeading(l Leader) bool { return l.Leading }

// nextEvent returns the next event of a session. It must be of this kind. One that leads may have been elected before.
func nextEvent(t *testing.T, s *Session, kind SessionEventKind) SessionEvent {
	t.Helper()
	e, err := s.Next(testwait.Context(t))
	for err == nil && kind == Lead && (e.Kind == Elect || e.Kind == Follow) {
		e, err = s.Next(testwait.Context(t))
	}
	if err != nil || e.Kind != kind {
		t.Fatalf("got event %+v, %v, want %s", e, err, kind)
	}
	return e
}

func openSession(t *testing.T, g *Group) *Session { return openSessionThat(t, g, false) }

// openSessionThat opens a session that renews or not.
func openSessionThat(t *testing.T, g *Group, renews bool) *Session {
	t.Helper()
	s, err := g.OpenSession(testwait.Context(t), renews)
	must.Succeed(t, err)
	t.Cleanup(s.Close)
	return s
}

// adopt switches to another list of another document.
func (g *Group) adopt(ctx context.Context, list memberlist.List, from config.Provenance) error {
	next := g.cfg.Group
	next.List, next.Provenance = list, from
	return g.Use(ctx, next)
}
