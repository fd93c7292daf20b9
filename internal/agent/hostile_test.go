package agent

import (
	"bufio"
	"fmt"
	"io"
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

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// testAgent is an agent with its address.
type testAgent struct {
	*Agent

	t       *testing.T
	address string
}

// startWithoutA starts the agents b to e of a group. A hostile peer plays its member a.
// The timeouts are long enough for a busy machine.
func startWithoutA(t *testing.T) map[string]*testAgent {
	t.Helper()
	agents, listeners := map[string]*testAgent{}, map[string]net.Listener{}
	members := []memberlist.Member{{Name: "a", Priority: 10, Address: "127.0.0.1:1"}}
	for i, name := range []string{"b", "c", "d", "e"} {
		listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
		must.Succeed(t, err)
		listeners[name] = listener
		members = append(members, memberlist.Member{
			Name: name, Priority: uint32(10 * (i + 2)), Address: listener.Addr().String(),
		})
	}
	of := config.Group{
		Name: "ledger", Algorithm: "StatusTable", Safety: config.Safety{Mode: office.Majority},
		Timing: config.Timing{
			Heartbeat: 100 * time.Millisecond, Stagger: 50 * time.Millisecond,
			ReplyTimeout: 100 * time.Millisecond, DrainTimeout: 5 * time.Second,
		},
		List: memberlist.List{Version: 1, Members: members},
	}
	steady(&of)
	for i, m := range members[1:] {
		a := startAgent(t, of, m.Name, uint32(i+100), t.TempDir(), listeners[m.Name])
		agents[m.Name] = &testAgent{a, t, m.Address}
	}
	return agents
}

// awaitCoordinator waits until the agent has a coordinator.
func (h *testAgent) awaitCoordinator(coordinator string) {
	h.t.Helper()
	awaitCoordinator(h.t, map[string]*Agent{h.Config().Self: h.Agent}, coordinator)
}

// leaderChange returns the agent's coordinator and the number of changes.
func (h *testAgent) leaderChange() group.Leader {
	h.t.Helper()
	g, _ := h.Find("ledger")
	change, err := g.Watch().Next(h.t.Context())
	must.Succeed(h.t, err)
	return change
}

func (h *testAgent) counter(name string) int {
	h.t.Helper()
	return h.counterOf("ledger", name)
}

func (h *testAgent) counterOf(group, name string) int {
	h.t.Helper()
	response := httptest.NewRecorder()
	h.options.Metrics.Handler(h.Agent).ServeHTTP(response, nil)
	found := regexp.MustCompile(name + `\{group="` + group + `"\} (\d+)`).FindStringSubmatch(response.Body.String())
	if found == nil {
		h.t.Fatalf("cannot find %s in\n%s", name, response.Body)
	}
	n, err := strconv.Atoi(found[1])
	must.Succeed(h.t, err)
	return n
}

// hostilePeer is member a, which sends arbitrary messages.
type hostilePeer struct {
	net.Conn

	t      *testing.T
	reader *bufio.Reader
	life   uint32
	// lastBeat is the latest BEAT. It has the version and the digest of the list.
	lastBeat *wire.Message
}

// connectHostile connects member a to an agent.
func connectHostile(t *testing.T, to *testAgent) *hostilePeer {
	t.Helper()
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to.address)
	must.Succeed(t, err)
	t.Cleanup(func() { raw.Close() })
	r := &hostilePeer{Conn: raw, t: t, reader: bufio.NewReader(raw), life: 666}
	r.write(wire.Frame{
		Hello: &wire.Hello{Protocol: wire.Protocol, Domain: "default", Name: "a", Life: r.life, Port: 1, Identity: 666},
	})
	return r
}

func (r *hostilePeer) write(frames ...wire.Frame) {
	r.t.Helper()
	var b []byte
	for _, f := range frames {
		b = wire.Append(b, f)
	}
	_, err := r.Write(b)
	must.Succeed(r.t, err)
}

// receive reads until a message matches.
func (r *hostilePeer) receive(matches func(*wire.Message) bool) *wire.Message {
	r.t.Helper()
	for {
		size, err := wire.ReadSize(r.reader, wire.MaxFrame)
		must.Succeed(r.t, err)
		body := make([]byte, size)
		_, err = io.ReadFull(r.reader, body)
		must.Succeed(r.t, err)
		frame, err := wire.Parse(body)
		must.Succeed(r.t, err)
		if frame.Message != nil && matches(frame.Message) {
			return frame.Message
		}
	}
}

func isBeat(m *wire.Message) bool { return m.Kind == election.Beat }

// message returns a valid message after applying change to it.
func (r *hostilePeer) message(change func(*wire.Message)) wire.Frame {
	m := &wire.Message{
		Group: "ledger", Kind: election.Beat, Term: r.lastBeat.Term, Subject: "a", Version: r.lastBeat.Version,
		Digest:       r.lastBeat.Digest,
		ConfigDigest: r.lastBeat.ConfigDigest,
		Hold:         election.Hold{Life: r.life, Held: true, Version: r.lastBeat.Version},
	}
	change(m)
	return wire.Frame{Message: m}
}

// awaitProcessed waits until the agent has processed all written frames: it sends a PROBE and waits for the response.
func (r *hostilePeer) awaitProcessed() {
	r.t.Helper()
	r.write(r.message(func(m *wire.Message) { m.Kind, m.Subject, m.Hold.Held = election.Probe, "", false }))
	r.receive(func(m *wire.Message) bool { return m.Kind == election.Probe && m.Hold.Held })
}

func TestInvalidMessagesChangeNothing(t *testing.T) {
	t.Parallel()
	agents := startWithoutA(t)
	for _, h := range agents {
		h.awaitCoordinator("e")
	}
	refused, outdated := "conclave_messages_refused_total", "conclave_messages_outdated_total"
	for name, c := range map[string]struct {
		change func(*wire.Message)
		metric string
	}{
		"a term of 2^63":       {func(m *wire.Message) { m.Term = 1 << 63 }, refused},
		"the highest term":     {func(m *wire.Message) { m.Term = election.MaxTerm }, refused},
		"the one behind that":  {func(m *wire.Message) { m.Term = election.MaxTerm + 1 }, refused},
		"a term far ahead":     {func(m *wire.Message) { m.Term += 10000 << 16 << 16 }, refused},
		"an election far off":  {func(m *wire.Message) { m.Kind, m.Term = election.Election, m.Term+10000 }, refused},
		"a grant far ahead":    {func(m *wire.Message) { m.Kind, m.Term = election.Grant, election.MaxTerm }, refused},
		"a resignation far":    {func(m *wire.Message) { m.Kind, m.Term = election.Resigned, election.MaxTerm }, refused},
		"an outdated BEAT":     {func(m *wire.Message) { m.Term-- }, outdated},
		"a BEAT of term 1":     {func(m *wire.Message) { m.Term = 1 }, outdated},
		"an outdated election": {func(m *wire.Message) { m.Kind, m.Term = election.Coordinator, 1 }, outdated},
		"an unknown kind":      {func(m *wire.Message) { m.Kind = 99 }, refused},
		"the last kind":        {func(m *wire.Message) { m.Kind = 255 }, refused},
		"no kind":              {func(m *wire.Message) { m.Kind = 0 }, refused},
		"an unknown subject":   {func(m *wire.Message) { m.Subject = "x" }, refused},
		"an unknown origin":    {func(m *wire.Message) { m.Origin = "x" }, refused},
		"too many suspects":    {func(m *wire.Message) { m.List = slices.Repeat([]string{"b"}, wire.MaxMembers) }, refused},
		"another list":         {func(m *wire.Message) { m.Digest++ }, refused},
		"another clock":        {func(m *wire.Message) { m.Lamport = 1<<64 - 1 }, refused},
	} {
		t.Run(name, func(t *testing.T) {
			for _, target := range []string{"b", "e"} {
				// On a busy machine, an election without this cause may happen meanwhile.
				problem := ""
				for range 5 {
					if problem = sendInvalid(t, agents[target], agents["e"], c.change, c.metric); problem == "" {
						break
					}
				}
				if problem != "" {
					t.Errorf("%s: %s", target, problem)
				}
			}
		})
	}
}

// sendInvalid sends an invalid message twice, and returns what else happened than that it was counted.
func sendInvalid(t *testing.T, target, coordinator *testAgent, change func(*wire.Message), metric string) string {
	t.Helper()
	beat := coordinator.receiveBeat(t)
	r := connectHostile(t, target)
	r.lastBeat = beat
	before, counted := target.leaderChange(), target.counter(metric)
	r.write(r.message(change), r.message(change)) // The second one is a replay.
	r.awaitProcessed()
	if after := target.leaderChange(); after != before {
		return fmt.Sprintf("got %+v, want %+v", after, before)
	}
	if n := target.counter(metric) - counted; n < 2 {
		return fmt.Sprintf("got %v messages in %s, want 2", n, metric)
	}
	return ""
}

// receiveBeat returns a BEAT that the coordinator sends to a.
func (h *testAgent) receiveBeat(t *testing.T) *wire.Message {
	t.Helper()
	return connectHostile(t, h).receive(isBeat)
}

// TestFloodOfMessagesHasNoEffect on the coordinator and the next election.
func TestFloodOfMessagesHasNoEffect(t *testing.T) {
	agents := startWithoutA(t)
	for _, h := range agents {
		h.awaitCoordinator("e")
	}
	beat := agents["e"].receiveBeat(t)
	before := agents["b"].leaderChange()
	var flooding sync.WaitGroup
	flooded := make(chan struct{}, len(agents))
	for _, h := range agents {
		r := connectHostile(t, h)
		r.lastBeat = beat
		long := strings.Repeat("n", wire.MaxName)
		batch := wire.Append(nil,
			r.message(func(m *wire.Message) { m.List = slices.Repeat([]string{long}, wire.MaxMembers) }))
		for range 100 {
			batch = wire.Append(batch,
				r.message(func(m *wire.Message) { m.Kind, m.Subject, m.Hold.Held = election.Probe, "", false }))
			batch = wire.Append(batch, r.message(func(m *wire.Message) { m.Kind, m.Term = election.Deny, m.Term-1 }))
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
	for range agents {
		testwait.Receive(t, "the flood", flooded)
	}
	expect.Equalf(t, agents["b"].leaderChange(), before, "b")
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	expect.AtMostf(t, memory.HeapAlloc, 100<<20, "bytes of the heap")
	agents["e"].Close(t.Context())
	for _, name := range []string{"b", "c", "d"} {
		agents[name].awaitCoordinator("d")
	}
}
