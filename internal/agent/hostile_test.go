package agent

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// house is an agent with what is known of it.
type testAgent struct {
	*Agent

	t        *testing.T
	address  string
	registry *metrics.Registry
}

// settle starts the agents b to e of a group that a is a member of, too. Its
// timing doesn't mind a machine that is busy.
func startWithoutA(t *testing.T, wall func(name string) time.Time) map[string]*testAgent {
	t.Helper()
	houses, listeners := map[string]*testAgent{}, map[string]net.Listener{}
	members := []config.Member{{Name: "a", Priority: 10, Address: "127.0.0.1:1"}}
	for i, name := range []string{"b", "c", "d", "e"} {
		listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[name] = listener
		members = append(members, config.Member{
			Name: name, Priority: election.Priority(10 * (i + 2)), Address: listener.Addr().String(),
		})
	}
	of := config.Group{
		Name: "ledger", Algorithm: "StatusTable", Safety: config.Safety{Mode: office.Majority, Lease: 2 * time.Second},
		Timing: config.Timing{
			Heartbeat: 100 * time.Millisecond, SuspicionTimeout: time.Second, Stagger: 50 * time.Millisecond,
			ReplyTimeout: 100 * time.Millisecond, DrainTimeout: 5 * time.Second,
		},
		List: config.List{Version: 1, Members: members},
	}
	for i, m := range members[1:] {
		store, err := state.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		registry := metrics.New()
		agent, err := New(t.Context(), &config.Config{Self: m.Name, Domain: "default", Groups: []config.Group{of}}, Options{
			Clock: clock.New(wall(m.Name)), Store: store, Life: uint32(i + 100), Listener: listeners[m.Name],
			Metrics: func(of string) group.Metrics { return registry.ForGroup(of) }, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { agent.Close(context.Background()) })
		houses[m.Name] = &testAgent{agent, t, m.Address, registry}
	}
	return houses
}

func wallClock(string) time.Time { return time.Now() }

// awaits waits until an agent knows who leads.
func (h *testAgent) awaitCoordinator(coordinator string) {
	h.t.Helper()
	awaitCoordinator(h.t, map[string]*Agent{h.Config().Self: h.Agent}, coordinator)
}

// state is what the agent says of who leads, and how often that has changed.
func (h *testAgent) leaderChange() group.Change {
	h.t.Helper()
	g, _ := h.Find("ledger")
	change, err := g.Watch("").Next(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return change
}

func (h *testAgent) counter(name string) int {
	h.t.Helper()
	answer := httptest.NewRecorder()
	h.registry.Handler(h.Agent).ServeHTTP(answer, nil)
	found := regexp.MustCompile(name + `\{group="ledger"\} (\d+)`).FindStringSubmatch(answer.Body.String())
	if found == nil {
		h.t.Fatalf("there is no %s in\n%s", name, answer.Body)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// rogue is a, a member that says whatever a test has it say.
type hostilePeer struct {
	net.Conn

	t      *testing.T
	reader *bufio.Reader
	life   uint32
	// heard is the latest BEAT: it has the version and the digest of the list.
	lastBeat *wire.Message
}

// intrude connects a with an agent.
func connectHostile(t *testing.T, to *testAgent) *hostilePeer {
	t.Helper()
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	r := &hostilePeer{Conn: raw, t: t, reader: bufio.NewReader(raw), life: 666}
	r.write(wire.Frame{Hello: &wire.Hello{Protocol: wire.Protocol, Domain: "default", Name: "a", Life: r.life, Port: 1, Term: clock.New(time.Now()).CurrentTerm()}})
	return r
}

func (r *hostilePeer) write(frames ...wire.Frame) {
	r.t.Helper()
	var b []byte
	for _, f := range frames {
		b = wire.Append(b, f)
	}
	if _, err := r.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// hears reads until a letter is as wanted.
func (r *hostilePeer) receive(wanted func(*wire.Message) bool) *wire.Message {
	r.t.Helper()
	for {
		size, err := wire.ReadSize(r.reader, wire.MaxFrame)
		if err != nil {
			r.t.Fatal(err)
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(r.reader, body); err != nil {
			r.t.Fatal(err)
		}
		frame, err := wire.Parse(body)
		if err != nil {
			r.t.Fatal(err)
		}
		if frame.Message != nil && wanted(frame.Message) {
			return frame.Message
		}
	}
}

func isBeat(l *wire.Message) bool { return l.Kind == election.Beat }

// letter is one that nothing is wrong with, but for what change does.
func (r *hostilePeer) message(change func(*wire.Message)) wire.Frame {
	l := &wire.Message{
		Group: "ledger", Kind: election.Beat, Term: r.lastBeat.Term, Subject: "a", Version: r.lastBeat.Version, Digest: r.lastBeat.Digest,
		ConfigDigest: r.lastBeat.ConfigDigest,
		Hold:         election.Hold{Life: r.life, Held: true, Version: r.lastBeat.Version},
	}
	change(l)
	return wire.Frame{Message: l}
}

// settles waits until all that was written has been read: it hails, and waits for
// the answer.
func (r *hostilePeer) awaitProcessed() {
	r.t.Helper()
	r.write(r.message(func(l *wire.Message) { l.Kind, l.Subject, l.Hold.Held = election.Probe, "", false }))
	r.receive(func(l *wire.Message) bool { return l.Kind == election.Probe && l.Hold.Held })
}

func TestLettersThatMakeNoSenseChangeNothing(t *testing.T) {
	houses := startWithoutA(t, wallClock)
	for _, h := range houses {
		h.awaitCoordinator("e")
	}
	refused, outdated := "conclave_messages_refused_total", "conclave_messages_outdated_total"
	for what, c := range map[string]struct {
		change func(*wire.Message)
		metric string
	}{
		"a term of 2^63":       {func(l *wire.Message) { l.Term = 1 << 63 }, refused},
		"the highest term":     {func(l *wire.Message) { l.Term = election.MaxTerm }, refused},
		"the one behind that":  {func(l *wire.Message) { l.Term = election.MaxTerm + 1 }, refused},
		"a term far ahead":     {func(l *wire.Message) { l.Term += 10000 }, refused},
		"an election far off":  {func(l *wire.Message) { l.Kind, l.Term = election.Election, l.Term+10000 }, refused},
		"a grant far ahead":    {func(l *wire.Message) { l.Kind, l.Term = election.Grant, election.MaxTerm }, refused},
		"a resignation far":    {func(l *wire.Message) { l.Kind, l.Term = election.Resigned, election.MaxTerm }, refused},
		"an outdated BEAT":     {func(l *wire.Message) { l.Term-- }, outdated},
		"a BEAT of term 1":     {func(l *wire.Message) { l.Term = 1 }, outdated},
		"an outdated election": {func(l *wire.Message) { l.Kind, l.Term = election.Coordinator, 1 }, outdated},
		"an unknown kind":      {func(l *wire.Message) { l.Kind = 99 }, refused},
		"the last kind":        {func(l *wire.Message) { l.Kind = 255 }, refused},
		"no kind":              {func(l *wire.Message) { l.Kind = 0 }, refused},
		"an unknown subject":   {func(l *wire.Message) { l.Subject = "x" }, refused},
		"an unknown origin":    {func(l *wire.Message) { l.Origin = "x" }, refused},
		"too many suspects":    {func(l *wire.Message) { l.List = slices.Repeat([]string{"b"}, 1000) }, refused},
		"another list":         {func(l *wire.Message) { l.Digest++ }, refused},
		"another clock":        {func(l *wire.Message) { l.Lamport = 1<<64 - 1 }, refused},
	} {
		t.Run(what, func(t *testing.T) {
			for _, name := range []string{"b", "e"} {
				h := houses[name]
				heard := houses["e"].receiveBeat(t)
				r := connectHostile(t, h)
				r.lastBeat = heard
				before, counted := h.leaderChange(), h.counter(c.metric)
				r.write(r.message(c.change), r.message(c.change)) // The second one is a replay.
				r.awaitProcessed()
				if after := h.leaderChange(); after != before {
					t.Errorf("%s said %+v and now says %+v", name, before, after)
				}
				if n := h.counter(c.metric) - counted; n < 2 {
					t.Errorf("%s has counted %d letters in %s", name, n, c.metric)
				}
			}
		})
	}
}

// beat is one of a coordinator's, as a hears it.
func (h *testAgent) receiveBeat(t *testing.T) *wire.Message {
	t.Helper()
	return connectHostile(t, h).receive(isBeat)
}

// TestAFloodOfLettersDisturbsNobody: neither who leads nor the next election.
func TestAFloodOfLettersDisturbsNobody(t *testing.T) {
	houses := startWithoutA(t, wallClock)
	for _, h := range houses {
		h.awaitCoordinator("e")
	}
	heard := houses["e"].receiveBeat(t)
	before := houses["b"].leaderChange()
	var flooding sync.WaitGroup
	flooded := make(chan struct{}, len(houses))
	for _, h := range houses {
		r := connectHostile(t, h)
		r.lastBeat = heard
		long := strings.Repeat("n", wire.MaxName)
		batch := wire.Append(nil, r.message(func(l *wire.Message) { l.List = slices.Repeat([]string{long}, wire.MaxMembers) }))
		for range 100 {
			batch = wire.Append(batch, r.message(func(l *wire.Message) { l.Kind, l.Subject, l.Hold.Held = election.Probe, "", false }))
			batch = wire.Append(batch, r.message(func(l *wire.Message) { l.Kind, l.Term = election.Deny, l.Term-1 }))
		}
		flooding.Go(func() { _, _ = io.Copy(io.Discard, r.reader) }) // Until the connection ends.
		flooding.Go(func() {
			for n := 0; ; n++ {
				if n == 25 {
					flooded <- struct{}{}
				}
				if _, err := r.Write(batch); err != nil {
					return
				}
			}
		})
		t.Cleanup(func() { r.Close() })
	}
	for range houses {
		<-flooded
	}
	if after := houses["b"].leaderChange(); after != before {
		t.Errorf("b said %+v and now says %+v", before, after)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	if memory.HeapAlloc > 100<<20 {
		t.Errorf("%d MB are taken", memory.HeapAlloc>>20)
	}
	houses["e"].Close(t.Context())
	for _, name := range []string{"b", "c", "d"} {
		houses[name].awaitCoordinator("d")
	}
}

// TestAClockThatIsWrongHarmsNobodyElse: whoever is a year ahead or behind speaks
// of terms that make no sense to the others; they go on without it.
func TestAClockThatIsWrongHarmsNobodyElse(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for what, c := range map[string]struct {
		who         string
		by          time.Duration
		coordinator string
	}{
		"the highest is a year ahead":  {"e", year, "d"},
		"the highest is a year behind": {"e", -year, "d"},
		"another is a year ahead":      {"b", year, "e"},
		"another is a year behind":     {"b", -year, "e"},
		"the highest is 2 s ahead":     {"e", 2 * time.Second, "e"},
		"the highest is 2 s behind":    {"e", -2 * time.Second, "e"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			houses := startWithoutA(t, func(name string) time.Time {
				if name == c.who {
					return time.Now().Add(c.by)
				}
				return time.Now()
			})
			for name, h := range houses {
				if name != c.who || c.coordinator == c.who {
					h.awaitCoordinator(c.coordinator)
				}
			}
			if c.coordinator == c.who {
				return
			}
			if l := houses[c.who].leaderChange().Leader; l.Leading {
				t.Errorf("%s says %+v", c.who, l)
			}
			if l := houses[c.coordinator].leaderChange().Leader; !l.Leading || election.Token(l.Token).Term() > houses[c.coordinator].termCeiling() {
				t.Errorf("%s says %+v", c.coordinator, l)
			}
		})
	}
}

// reading is that of the agent's term clock.
func (h *testAgent) termCeiling() election.Term {
	return h.options.Clock.TermClock().Ceiling(h.options.Clock.Now())
}
