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
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// town is some groups' agents, with a post between them that loses nothing
// unless it is told to.
type town struct {
	t *testing.T

	mu     sync.Mutex
	groups map[string]*Group
	cut    map[string]bool
	// roundTrip is what the kernel is said to have measured.
	roundTrip time.Duration
}

// office of one member.
type desk struct {
	town *town
	name string
}

func (d desk) Send(to string, parcel transport.Outgoing) bool {
	d.town.mu.Lock()
	g := d.town.groups[to]
	cut := d.town.cut[d.name] || d.town.cut[to]
	d.town.mu.Unlock()
	if cut || g == nil {
		return !cut && g != nil
	}
	r := bytes.NewReader(parcel.Frame)
	size, err := wire.ReadSize(r, wire.MaxFrame)
	if err != nil {
		d.town.t.Error(err)
	}
	frame, err := wire.Parse(parcel.Frame[len(parcel.Frame)-size:])
	if err != nil {
		d.town.t.Error(err)
	}
	go g.ReceiveMessage(d.name, frame.Message) // The post doesn't wait; letters may overtake each other.
	return true
}

func (d desk) Connected(string) bool { return true }

func (d desk) RoundTrip(string) time.Duration {
	d.town.mu.Lock()
	defer d.town.mu.Unlock()
	return d.town.roundTrip
}

type silentMeter struct{}

func (silentMeter) Sent(election.Kind)                   {}
func (silentMeter) Received(election.Kind)               {}
func (silentMeter) Event(election.Event)                 {}
func (silentMeter) Refused()                             {}
func (silentMeter) Suspected()                           {}
func (silentMeter) Cleared()                             {}
func (silentMeter) CoordinatorLost(Cause, time.Duration) {}
func (silentMeter) CoordinatorFound(time.Duration)       {}

// found starts a group of members with their priorities, in short time.
func found(t *testing.T, priorities map[string]int, change func(*config.Group)) *town {
	t.Helper()
	town := &town{t: t, groups: map[string]*Group{}, cut: map[string]bool{}}
	of := config.Group{
		Name: "ledger", Algorithm: "StatusTable",
		Safety:     config.Safety{Mode: office.Majority, Lease: 200 * time.Millisecond},
		Preemption: config.Preemption{Policy: office.Always},
		Timing: config.Timing{
			Heartbeat: 20 * time.Millisecond, SuspicionTimeout: 100 * time.Millisecond, Stagger: 10 * time.Millisecond,
			ReplyTimeout: 10 * time.Millisecond, DrainTimeout: time.Minute,
		},
		List: config.List{Version: 1},
	}
	for _, name := range slices.Sorted(maps.Keys(priorities)) {
		of.List.Members = append(of.List.Members, config.Member{
			Name: name, Priority: election.Priority(priorities[name]), Address: name + ":1",
		})
	}
	if change != nil {
		change(&of)
	}
	for i, m := range of.List.Members {
		town.join(m.Name, uint32(i+1), of)
	}
	return town
}

func (town *town) join(name string, life uint32, of config.Group) {
	town.t.Helper()
	g, err := New(Config{
		Self: name, Life: life, Clock: clock.New(time.Now()), Group: of, Transport: desk{town, name}, Metrics: silentMeter{},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		town.t.Fatal(err)
	}
	town.t.Cleanup(func() {
		town.isolate(name)
		g.Leave(town.t.Context()) // Its context has ended by now: nothing is handed over.
	})
	town.mu.Lock()
	defer town.mu.Unlock()
	town.groups[name] = g
}

func (town *town) isolate(name string) {
	town.mu.Lock()
	defer town.mu.Unlock()
	town.cut[name] = true
}

func (town *town) of(name string) *Group {
	town.mu.Lock()
	defer town.mu.Unlock()
	return town.groups[name]
}

// soon is the deadline of everything that a test waits for.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// await waits for a state of a group.
func await(t *testing.T, g *Group, what string, wanted func(Leader) bool) Leader {
	t.Helper()
	w, ctx := g.Watch(""), soon(t)
	for {
		change, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("%s waits until %s: %v; it says %+v", g.cfg.Self, what, err, g.Leader())
		}
		if wanted(change.Leader) {
			return change.Leader
		}
	}
}

// insist asks again as long as nobody is ready to take over: they have to say
// first that they are.
func insist(ctx context.Context, ask func(context.Context) error) error {
	for {
		if err := ask(ctx); !errors.Is(err, ErrNoSuccessor) || ctx.Err() != nil {
			return err
		}
	}
}

// inFavourOf has a process step down.
func (g *Group) inFavourOf(to string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := g.StepDown(ctx, to)
		return err
	}
}

func leads(l Leader) bool { return l.Leading }

// next is the next event of a session, which must be of that kind.
func next(t *testing.T, s *Session, kind SessionEventKind) SessionEvent {
	t.Helper()
	e, err := s.Next(soon(t))
	if err != nil || e.Kind != kind {
		t.Fatalf("the session was told %+v, %v instead of %s", e, err, kind)
	}
	return e
}

func open(t *testing.T, g *Group) *Session {
	t.Helper()
	s, err := g.OpenSession(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
