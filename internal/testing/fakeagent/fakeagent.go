// Package fakeagent stands in for the agents of pods: in the operator's
// benchmark, and in its tests.
//
// An understudy has a certificate, and the agent's API for the operator. What it is
// told it does as an agent would, and reports that. What it doesn't do is elect:
// who leads is decreed. It can be made to say anything else, too, and to refuse.
package fakeagent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// Identity is whom an understudy stands in for.
type Identity struct {
	Namespace, Pod string
	// Groups are those that its certificate is for.
	Groups []string
	// Address is where it is awaited: with control.OperatorPort as a rule.
	Address string
	// Network leads from there to where it listens. Without one it listens there.
	Network *Network
}

// Call is something that it was told.
type Call struct {
	Method, Path, Body string
}

// Agent is one understudy.
type Agent struct {
	role Identity
	held *identity.Held
	life uint32
	// traffic counts what went over its connections, as it was sent: encrypted.
	received, sent atomic.Int64
	streams        atomic.Int32

	mu     sync.Mutex
	server *http.Server
	parts  map[string]*part
	calls  []Call
	refuse func(Call) int
	// news is closed and replaced when something has changed, and dropped when
	// those who listen are to be cut off.
	news, dropped chan struct{}
}

// part is what it says about one group. Changes number that, so that each stream
// knows what it has said.
type part struct {
	report control.Report
	change uint64
	left   bool
}

// New makes an understudy. It can't be found yet.
func New(role Identity, w *CertificateFactory) (*Agent, error) {
	var names identity.Names
	for _, group := range role.Groups {
		names = append(names, identity.Name{Domain: role.Namespace, Group: group, Member: role.Pod})
	}
	held, err := w.hold(names...)
	if err != nil {
		return nil, fmt.Errorf("understudy of %s: %w", role.Pod, err)
	}
	return &Agent{
		role: role, held: held, life: uint32(time.Now().UnixMilli()), //nolint:gosec // another one each time
		parts: map[string]*part{}, news: make(chan struct{}), dropped: make(chan struct{}),
	}, nil
}

const patience = 10 * time.Second

// Run lets it be found at its address until it is stopped.
func (a *Agent) Run(ctx context.Context) error {
	listener, err := a.listen(ctx)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: a.handler(), ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	a.mu.Lock()
	a.server = server
	a.mu.Unlock()
	go func() { _ = server.Serve(listener) }() // It ends when it is stopped.
	return nil
}

// ServeRaw lets it be found, and say what speak writes to each connection and nothing
// else. It ends with the context.
func (a *Agent) ServeRaw(ctx context.Context, speak func(net.Conn)) error {
	listener, err := a.listen(ctx)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				speak(conn)
			}()
		}
	}()
	return nil
}

func (a *Agent) listen(ctx context.Context) (net.Listener, error) {
	address := a.role.Address
	if a.role.Network != nil {
		address = "127.0.0.1:0"
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("understudy of %s: %w", a.role.Pod, err)
	}
	a.role.Network.lead(a.role.Address, listener.Addr().String())
	return tls.NewListener(counted{listener, a}, a.held.Server()), nil
}

// Stop ends it and its connections. It can run again.
func (a *Agent) Stop() error {
	a.mu.Lock()
	server := a.server
	a.server = nil
	a.mu.Unlock()
	if server == nil {
		return nil
	}
	a.role.Network.lead(a.role.Address, "")
	return server.Close()
}

// CloseStreams ends the streams that it is heard over.
func (a *Agent) CloseStreams() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.dropped)
	a.dropped = make(chan struct{})
}

// Traffic is how many bytes went over its connections.
func (a *Agent) Traffic() (received, sent int64) { return a.received.Load(), a.sent.Load() }

// Streams is how many streams of it have been told all that there was to say, and are open.
func (a *Agent) Streams() int { return int(a.streams.Load()) }

// Calls are all that it was told.
func (a *Agent) Calls() []Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// Refuse has somebody be asked before it does what it is told: a status is the
// answer, and it does nothing; 0 has it do so.
func (a *Agent) Refuse(asked func(Call) int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = asked
}

// Report is what it says about a group, if it takes part in it.
func (a *Agent) Report(group string) (control.Report, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.parts[group]
	if p == nil || p.left {
		return control.Report{}, false
	}
	return p.report, true
}

// AwaitGroup returns when it takes part in a group.
func (a *Agent) AwaitGroup(ctx context.Context, group string) error {
	for {
		a.mu.Lock()
		news := a.news
		a.mu.Unlock()
		if _, in := a.Report(group); in {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("%s wasn't told about %s: %w", a.role.Pod, group, ctx.Err())
		}
	}
}

// ChangeReport has it report something else about a group, in which it takes part from then on.
func (a *Agent) ChangeReport(group string, change func(*control.Report)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.change(group, change)
}

func (a *Agent) change(group string, change func(*control.Report)) {
	p := a.parts[group]
	if p == nil {
		p = &part{}
		a.parts[group] = p
	}
	if p.left || p.change == 0 {
		p.report, p.left = control.Report{Group: group, Pod: a.role.Pod}, false
	}
	change(&p.report)
	a.changed(p)
}

// Leave has it leave a group, and say so.
func (a *Agent) Leave(group string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.parts[group]; p != nil {
		p.left = true
		a.changed(p)
	}
}

// changed lets the streams know. The caller holds mu.
func (a *Agent) changed(p *part) {
	p.change++
	close(a.news)
	a.news = make(chan struct{})
}

var errNotIn = errors.New("it takes no part in this group")
