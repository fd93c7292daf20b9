// Package proxy carries TCP connections to the application of a group's coordinator. Each agent listens for clients,
// and connects each of them with the application of whom it believes to be coordinator, in one hop:
//
//	client -> agent of any member -> application of the coordinator
//
// New connections wait while there is no coordinator, or while its application refuses them. Those to a former one are
// reset. Nothing is parsed, and the kernel moves the bytes (splice).
//
// This routes, and doesn't fence. Until this agent has learned that a coordinator lost the office, connections arrive
// at an application that no longer leads, and has to refuse them itself.
//
// A connection that waits costs a socket and a place in a queue, an open one two sockets and two goroutines. These work
// one after the other, and let elections pass: see turns.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Coordinator is whom the agent believes to be coordinator.
type Coordinator struct {
	// Name is empty if there is none. Name and Term identify a tenure: connections don't outlive it.
	Name    string
	Term    uint64
	Address netip.Addr // of its application. New connections wait until it is known.
	Self    bool       // It is this agent's own process, which knows for certain when its tenure ends.
	Stops   bool       // It hands over. Connections remain until it has, and new ones wait for the successor.
}

func (c *Coordinator) reachable() bool { return c.Address.IsValid() && !c.Stops }

// Service is what the agent carries for a group.
type Service struct {
	config.Service

	// Coordinator returns the coordinator at this moment. It must not block.
	Coordinator func() Coordinator
	Stats       *Stats
}

const (
	// dialers is how many connections of a port are being established with the application at the same time.
	dialers = 4
	// dialTimeout is less than the second after which the kernel repeats a lost packet.
	dialTimeout = 400 * time.Millisecond
	// retryMin and retryMax are the shortest and the longest time between two attempts at an application that doesn't
	// accept connections.
	retryMin, retryMax = time.Millisecond / 2, 10 * time.Millisecond
	// pause is how long the proxy waits for a machine that lacks memory or files, or for a client that reads slowly.
	pause = 10 * time.Millisecond
)

// Proxy carries the connections of a group.
type Proxy struct {
	Service

	shared    *Shared
	ended     context.Context //nolint:containedctx // It ends with Close.
	stop      context.CancelFunc
	listeners []net.Listener
	running   sync.WaitGroup

	mu      sync.Mutex
	now     Coordinator
	tenure  *tenure       // that of now, or the last one if there is no coordinator
	changed chan struct{} // closed when now changes
	lapse   *time.Timer   // ends the tenure if no coordinator follows
	open    map[*conn]struct{}
}

// tenure is the time of a coordinator. Attempts to reach its application end with it.
type tenure struct {
	Coordinator

	ctx   context.Context //nolint:containedctx // See above.
	end   context.CancelFunc
	began time.Time
	// Connections that arrived before late had to wait. It is fixed when the application has accepted one.
	late     time.Time
	accepted bool
}

// retryDelay returns the time until the next attempt at the application. Most applications begin to listen when they
// learn that they lead, which is a few milliseconds after the agents have learned it.
func (t *tenure) retryDelay() time.Duration {
	return min(max(retryMin, time.Since(t.began)/4), retryMax)
}

// Serve carries connections for a group until Close.
func Serve(ctx context.Context, shared *Shared, s Service) (*Proxy, error) {
	p := &Proxy{
		Service: s, shared: shared, changed: make(chan struct{}), lapse: time.NewTimer(0), open: map[*conn]struct{}{},
	}
	p.ended, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.begin(Coordinator{})
	p.Update()
	for _, to := range s.Ports {
		if slices.ContainsFunc(s.Ports, func(p control.ServicePort) bool {
			return strings.HasSuffix(to.Listen, fmt.Sprintf(":%d", p.Port))
		}) {
			p.Close()
			return nil, fmt.Errorf("cannot listen for clients at %s: that is a port of the application", to.Listen)
		}
		config := net.ListenConfig{Control: setOptions, KeepAliveConfig: keepAlive}
		config.SetMultipathTCP(false) // The kernel can't splice it.
		l, err := config.Listen(ctx, "tcp", to.Listen)
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("cannot listen for clients: %w", err)
		}
		p.listeners = append(p.listeners, l)
		waiting := make(chan *conn, shared.limits.Waiting)
		p.running.Go(func() { p.accept(l, waiting) })
		for range dialers {
			p.running.Go(func() { //nolint:contextcheck // A tenure has its own.
				for c := range waiting {
					p.connect(c, to.Port)
				}
			})
		}
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.proxies[p] = struct{}{}
	return p, nil
}

// keepAlive: an end that has become unreachable is noticed within a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// setOptions makes buffers small from the first packet. The kernel offers large windows nevertheless, for later: with a
// locked size, or before Linux 5.14, it never offers more than 64 KiB.
func setOptions(_, _ string, raw syscall.RawConn) (err error) {
	failed := raw.Control(func(fd uintptr) {
		err = errors.Join(setReceiveBuffer(fd, smallBuffer), setSendBuffer(fd, smallBuffer))
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK, unix.SOCK_SNDBUF_LOCK)
	})
	return errors.Join(err, failed)
}

// Update makes the proxy learn who is coordinator now. It resets the connections to a former one.
func (p *Proxy) Update() {
	p.mu.Lock()
	next, last := p.Coordinator(), p.tenure
	if next == p.now {
		p.mu.Unlock()
		return
	}
	p.lapse.Stop()
	switch {
	case next.Name == "" && !last.Self: // It may be suspected wrongly.
		p.lapse = time.AfterFunc(p.Wait, p.forget)
	case next.Name != last.Name || next.Term != last.Term:
		p.begin(next)
		defer p.end(last)
	}
	if p.now = next; !p.tenure.accepted {
		p.tenure.late = time.Now()
	}
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
}

// forget ends the tenure of a coordinator that is still unknown.
func (p *Proxy) forget() {
	p.mu.Lock()
	last, unknown := p.tenure, p.now.Name == ""
	if unknown {
		p.begin(Coordinator{})
	}
	p.mu.Unlock()
	if unknown {
		p.end(last)
	}
}

// begin begins a tenure.
func (p *Proxy) begin(c Coordinator) {
	p.tenure = &tenure{Coordinator: c, began: time.Now()}
	p.tenure.ctx, p.tenure.end = context.WithCancel(p.ended)
	if c.Name != "" {
		p.Stats.begin(c.Term)
	}
}

// end ends a tenure.
func (p *Proxy) end(t *tenure) {
	t.end()
	if !p.Keep {
		p.reset(CoordinatorChanged, func(c *conn) bool { return c.to == t })
	}
}

// reset ends open connections.
func (p *Proxy) reset(why Reason, which func(*conn) bool) {
	p.mu.Lock()
	var all []*conn
	for c := range p.open {
		if which(c) {
			all = append(all, c)
		}
	}
	p.mu.Unlock()
	for _, c := range all {
		p.shared.turns.take(func() { c.abort(why) })
	}
}

// Close ends all connections.
func (p *Proxy) Close() {
	p.shared.mu.Lock()
	delete(p.shared.proxies, p)
	p.shared.mu.Unlock()
	p.stop()
	for _, l := range p.listeners {
		_ = l.Close() // It has nothing that could fail.
	}
	p.reset(Stopped, func(*conn) bool { return true })
	p.running.Wait()
}

// accept accepts connections, also if there are too many: in the kernel's backlog, they would wait without a limit.
func (p *Proxy) accept(l net.Listener, waiting chan *conn) {
	defer close(waiting)
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			time.Sleep(pause)
			continue
		}
		c := newConn(p, client.(*net.TCPConn)) //nolint:errcheck,forcetypeassert // Network "tcp" has no other.
		more := true
		p.shared.turns.take(func() {
			if more = !c.tooMany(); !more {
				c.close(TooMany)
			}
		})
		if more {
			waiting <- c
		}
	}
}

// connect connects a client with the application of the coordinator. It waits for both, but tries at least once.
func (p *Proxy) connect(c *conn, port uint16) {
	timeout := time.NewTimer(time.Until(c.giveUp))
	defer timeout.Stop()
	for p.ended.Err() == nil {
		p.mu.Lock()
		now, to, changed := p.now, p.tenure, p.changed
		p.mu.Unlock()
		var retry <-chan time.Time
		if now.reachable() {
			if p.dial(c, to, netip.AddrPortFrom(now.Address, port)) {
				return
			}
			retry = time.After(to.retryDelay())
		}
		select {
		case <-retry:
		case <-changed:
		case <-p.ended.Done():
		case <-timeout.C:
			c.close(WaitedInVain)
			w := control.Wait{InVain: 1}
			if now.Name != "" {
				w.Term = now.Term
			}
			p.Stats.wait(w)
			return
		}
	}
	c.close(Stopped)
}

// dial connects a client with an application, unless that fails, or the tenure ends.
func (p *Proxy) dial(c *conn, to *tenure, at netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(to.ctx, dialTimeout)
	defer cancel()
	dialer := net.Dialer{Control: setOptions, KeepAliveConfig: keepAlive}
	dialer.SetMultipathTCP(false)
	server, err := dialer.DialContext(ctx, "tcp", at.String())
	if err != nil {
		if to.ctx.Err() == nil {
			p.Stats.FailedDials.Add(1)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if !to.accepted {
			to.late = time.Now()
		}
		return false
	}
	c.server, c.to = server.(*net.TCPConn), to //nolint:errcheck,forcetypeassert // Network "tcp" has no other.
	lock(c.server)
	if p.ProxyProtocol {
		_, _ = server.Write(header(c.client)) // It fits in the buffer, and move sees if the connection is broken.
	}
	p.mu.Lock()
	arrived, current := c.giveUp.Add(-p.Wait), to.ctx.Err() == nil
	waited := current && arrived.Before(to.late)
	if current {
		p.open[c], to.accepted = struct{}{}, true
	}
	p.mu.Unlock()
	if !current {
		_ = server.Close()
		c.server = nil
		return false
	}
	p.Stats.Waiting.Add(-1)
	if waited {
		p.Stats.wait(control.Wait{Term: to.Term, Connections: 1, LongestMicros: time.Since(arrived).Microseconds()})
	}
	p.running.Go(func() { c.move(c.client, c.server, &p.Stats.FromClients) })
	p.running.Go(func() { c.move(c.server, c.client, &p.Stats.ToClients) })
	return true
}
