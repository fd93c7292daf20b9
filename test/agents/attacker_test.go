package agents

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// attacker is a process with the certificate of a member, which sends the other members what it likes.
type attacker struct {
	t       *testing.T
	cluster *agentcluster.Cluster
	self    *agentcluster.Agent
	files   *identity.Files
	// life is the incarnation in the next Hello.
	life atomic.Uint32

	mutex sync.Mutex
	// beat is the last BEAT of a coordinator that the attacker has received, and received are
	// the last messages of all members.
	beat     *wire.Message
	received []message
	// connected are the victims with a connection.
	connected map[string]bool
	// craft, if it isn't nil, makes the frames to send.
	craft func(seen) []wire.Frame
	sent  int
}

// message is one that a member has sent.
type message struct {
	*wire.Message

	from string
}

// seen is what an attack can use: a valid message of the coordinator, others to repeat, and the names of the victims.
type seen struct {
	random *rand.Rand
	// life is the attacker's incarnation, and to the victim.
	life     uint32
	to       string
	beat     wire.Message
	received []message
	names    []string
}

// startAttacker attacks the victims in the name of a member that isn't running.
func startAttacker(t *testing.T, cluster *agentcluster.Cluster, name string, seed uint64, victims []string) *attacker {
	t.Helper()
	self := cluster.Agent(name)
	files, err := identity.Open(identity.Paths{Cert: self.TLS().CertFile, Key: self.TLS().KeyFile, CA: self.TLS().CAFile},
		nil)
	must.Succeed(t, err)
	a := &attacker{t: t, cluster: cluster, self: self, files: files, connected: map[string]bool{}}
	a.life.Store(1)
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", self.Address())
	must.Succeed(t, err)
	tasks.Go(func() { holdConnections(listener) })
	for i, victim := range victims {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		tasks.Go(func() {
			for ctx.Err() == nil {
				a.attack(ctx, victim, random)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		listener.Close()
		tasks.Wait()
	})
	return a
}

// holdConnections accepts connections and never answers. So others that connect to the
// attacker don't find its port closed.
func holdConnections(listener net.Listener) {
	var held []net.Conn
	for {
		conn, err := listener.Accept()
		if err != nil {
			break
		}
		held = append(held, conn)
	}
	for _, conn := range held {
		conn.Close()
	}
}

// framesPerSecond is how many frames a victim gets. It is far below what an agent accepts,
// because the tests are about the content of frames.
const framesPerSecond = 500

// attack connects to a victim and sends frames until the connection ends.
func (a *attacker) attack(ctx context.Context, victim string, random *rand.Rand) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.self.Host)}, Timeout: time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", a.cluster.Agent(victim).Address())
	if err != nil {
		select { // The victim has crashed.
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
		return
	}
	conn := tls.Client(raw, a.files.Client())
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	defer raw.Close()
	life := a.life.Load()
	_, port, err := net.SplitHostPort(a.self.Address())
	if err != nil {
		return
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return
	}
	hello := wire.Hello{
		Protocol: wire.Protocol, Revision: wire.Revision, Domain: "default", Name: a.self.Name,
		Life: life, Port: uint16(number),
		Identity: 666,
	}
	if _, err := conn.Write(wire.Append(nil, wire.Frame{Hello: &hello})); err != nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.read(bufio.NewReader(conn), victim)
	}()
	pause := time.NewTicker(time.Second / framesPerSecond)
	defer pause.Stop()
	for a.life.Load() == life {
		select {
		case <-pause.C:
			if _, err := conn.Write(a.frames(victim, life, random)); err != nil {
				raw.Close()
			}
			continue
		case <-ended:
		}
		break
	}
	raw.Close()
	<-ended
}

// read remembers the messages of a victim until the connection ends.
func (a *attacker) read(stream *bufio.Reader, victim string) {
	const remembered = 500
	for {
		size, err := wire.ReadSize(stream, wire.MaxFrame)
		if err != nil {
			break
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(stream, body); err != nil {
			break
		}
		frame, err := wire.Parse(body)
		if err != nil {
			break
		}
		a.mutex.Lock()
		a.connected[victim] = true
		if m := frame.Message; m != nil {
			a.received = append(a.received[max(0, len(a.received)-remembered+1):], message{m, victim})
			if m.Kind == election.Beat && m.Hold.Held {
				a.beat = m
			}
		}
		a.mutex.Unlock()
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.connected, victim)
}

// frames returns the next frames for a victim.
func (a *attacker) frames(victim string, life uint32, random *rand.Rand) []byte {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.craft == nil || a.beat == nil {
		return nil
	}
	known := seen{random: random, life: life, to: victim, beat: *a.beat, received: a.received, names: a.cluster.Names()}
	known.beat.Hold.Life = life
	var b []byte
	for _, frame := range a.craft(known) {
		b = wire.Append(b, frame)
		a.sent++
	}
	return b
}

// use makes the attacker send the frames of another attack, or none.
func (a *attacker) use(craft func(seen) []wire.Frame) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.craft, a.sent = craft, 0
}

// count returns the number of frames sent since the last call of use.
func (a *attacker) count() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.sent
}

// ready reports whether the attacker is connected with all victims and has received a BEAT.
func (a *attacker) ready(victims []string) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.beat != nil && len(a.connected) == len(victims)
}

// message returns a frame with a BEAT of the attacker, after applying change to it.
func (s seen) message(change func(*wire.Message)) wire.Frame {
	m := s.beat
	m.Subject, m.List = "a", nil
	change(&m)
	return wire.Frame{Message: &m}
}

// attacks are what the attacker sends, by name. Each makes one or more frames.
var attacks = map[string]func(seen) []wire.Frame{
	"tenures in terms ahead": func(s seen) []wire.Frame {
		return s.inTermsAhead(func(m *wire.Message) { m.Hold.Held = true })
	},
	"claims in terms ahead": func(s seen) []wire.Frame {
		return s.inTermsAhead(func(m *wire.Message) { m.Hold.Held = false })
	},
	"refusals in terms ahead": func(s seen) []wire.Frame {
		return s.inTermsAhead(func(m *wire.Message) { m.Kind, m.Hold.HighestGranted = election.Deny, m.Term })
	},
	"grants in terms ahead": func(s seen) []wire.Frame {
		return s.inTermsAhead(func(m *wire.Message) {
			m.Kind, m.Hold.HighestGranted, m.Hold.RequesterLife = election.Grant, m.Term, s.lifeOf(s.to)
		})
	},
	"answers with bounds ahead": func(s seen) []wire.Frame {
		return s.inTermsAhead(func(m *wire.Message) {
			m.Kind, m.Subject, m.Hold.Held, m.Hold.HighestGranted, m.Hold.RequesterLife = election.Probe, "",
				true, m.Term, s.lifeOf(s.to)
		})
	},
	"elections in terms ahead": func(s seen) []wire.Frame {
		kinds := election.Kinds()
		return s.inTermsAhead(func(m *wire.Message) { m.Kind, m.Origin = kinds[s.random.IntN(len(kinds))], s.anyName() })
	},
	"resignations": func(s seen) []wire.Frame {
		return s.inTermsAhead(func(m *wire.Message) {
			m.Kind, m.Subject, m.Hold.Held = election.Resigned, s.anyName(), s.random.IntN(2) == 0
		})
	},
	"names of coordinators": func(s seen) []wire.Frame {
		kinds := []election.Kind{election.Coordinator, election.Table, election.Reply, election.NewCoordinator, election.Beat}
		return s.inTermsAhead(func(m *wire.Message) {
			m.Kind, m.Subject, m.Hold.Held = kinds[s.random.IntN(len(kinds))], s.anyName(), true
		})
	},
	"suspicions": func(s seen) []wire.Frame {
		return []wire.Frame{s.message(func(m *wire.Message) { m.List = s.names }), s.message(func(m *wire.Message) {
			m.Kind, m.Subject = election.Election, s.anyName()
		})}
	},
	"replays": func(s seen) []wire.Frame {
		return []wire.Frame{{Message: s.received[s.random.IntN(len(s.received))].Message}}
	},
	"other member lists": func(s seen) []wire.Frame {
		return []wire.Frame{s.message(func(m *wire.Message) {
			m.Version += uint32(s.random.IntN(4)) - 1
			m.Hold.Version, m.Digest, m.Kind = m.Version+uint32(s.random.IntN(3)), s.random.Uint64(), s.anyKind()
		})}
	},
	"addresses of others": func(s seen) []wire.Frame {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(1+s.random.IntN(9)))
		return []wire.Frame{{PeerAddress: &wire.PeerAddress{Name: s.anyName(), Address: address}}}
	},
	"anything": func(s seen) []wire.Frame { return []wire.Frame{s.message(s.randomize)} },
}

// aheads are differences of terms: some that are valid, and the limits of what members accept.
var aheads = []election.Term{
	0, 1, 2, 10, election.Block, election.Block + 1, 4095, 4096, 4097, 10_000, 1<<42 - 1, 1 << 42, 1<<42 + 1<<16,
}

// inTermsAhead returns a message in a term ahead of the coordinator's, and in one of the next list.
func (s seen) inTermsAhead(change func(*wire.Message)) []wire.Frame {
	ahead := aheads[s.random.IntN(len(aheads))]
	return []wire.Frame{
		s.message(func(m *wire.Message) { m.Term += ahead; change(m) }),
		s.message(func(m *wire.Message) { m.Term = election.FirstTerm(m.Version+1) + ahead; change(m) }),
	}
}

// lifeOf returns the incarnation of a member.
func (s seen) lifeOf(name string) uint32 {
	for _, m := range s.received {
		if m.from == name && m.Hold.Life != 0 {
			return m.Hold.Life
		}
	}
	return s.random.Uint32()
}

func (s seen) anyName() string        { return s.names[s.random.IntN(len(s.names))] }
func (s seen) anyKind() election.Kind { return election.Kind(s.random.IntN(24)) }
func (s seen) anyTerm() election.Term {
	return s.beat.Term + aheads[s.random.IntN(len(aheads))] - 2
}

func (s seen) anyTick() election.Tick {
	return s.beat.Hold.Sent + election.Tick(s.random.Int64N(2e9)-1e9)
}
func (s seen) coin() bool { return s.random.IntN(2) == 0 }

// randomize changes all fields of a message.
func (s seen) randomize(m *wire.Message) {
	m.Kind, m.Term, m.Subject, m.Origin = s.anyKind(), s.anyTerm(), s.anyName(), s.anyName()
	m.Lamport, m.Hops = s.beat.Lamport+s.random.Uint64N(100), s.random.Uint32N(8)
	for range s.random.IntN(6) {
		m.List = append(m.List, s.anyName())
	}
	h := &m.Hold
	h.Sent, h.HighestGranted, h.RequesterLife = s.anyTick(), s.anyTerm(), s.lifeOf(s.to)
	h.Held, h.Ready, h.Ineligible = s.coin(), s.coin(), s.coin()
	h.Settled, h.Abstains, m.Refuses = s.coin(), s.coin(), s.coin()
	h.Version = m.Version + s.random.Uint32N(2)
}
