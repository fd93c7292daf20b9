// Package fakeagent provides stand-ins for agents, for the tests and the benchmark of the operator.
//
// A fake agent has a certificate and serves the agent's API for the operator. It obeys
// commands and reports the result like a real agent, but doesn't elect: the test sets
// the coordinator. A test can also change its reports and make it refuse commands.
package fakeagent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// Identity is the agent that a fake agent replaces.
type Identity struct {
	Namespace, Pod string
	// UID is that of the pod in its certificate, which has none if it is empty.
	UID string
	// State is the identity of its state directory. By default it follows from the other names: a replaced pod has
	// another one.
	State string
	// Groups are the groups in its certificate. That of a witness has none.
	Groups  []string
	Witness bool
	// Address is the address that the operator dials, usually with control.OperatorPort.
	Address string
	// Network maps Address to the real listener, and Port accepts the connections to it.
	// Without either, the agent listens on Address.
	Network *Network
	Port    *Port
}

// Call is a command that an agent received.
type Call struct {
	Method, Path, Body string
}

// Agent is a fake agent.
type Agent struct {
	identity    Identity
	certificate *identity.InMemory
	life        uint32
	streams     atomic.Int32

	mu     sync.Mutex
	server *http.Server
	groups map[string]*groupState
	calls  []Call
	refuse func(Call) int
	// changes is closed and replaced when a report changes. closed is closed and replaced to end all streams.
	changes, closed chan struct{}
}

// groupState is the agent's state in one group. Each stream remembers the number of the last change that it sent.
type groupState struct {
	report control.Report
	change uint64
	left   bool
}

// New creates a fake agent. It doesn't listen before Run.
func New(role Identity, w *CertificateFactory) (*Agent, error) {
	var names identity.Names
	for _, group := range role.Groups {
		names = append(names, identity.Name{Domain: role.Namespace, Group: group, Member: role.Pod})
	}
	if role.Witness {
		names = identity.Names{control.Witness(role.Pod)}
	}
	held, err := w.hold(role.UID, names...)
	if err != nil {
		return nil, fmt.Errorf("cannot start the fake agent of %s: %w", role.Pod, err)
	}
	if role.State == "" {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%s %s %s", role.Namespace, role.Pod, role.UID) // A hash never returns an error.
		role.State = memberlist.FormatIdentity(h.Sum64())
	}
	return &Agent{
		identity: role, certificate: held, life: uint32(time.Now().UnixMilli()), //nolint:gosec // any number that differs
		groups: map[string]*groupState{}, changes: make(chan struct{}), closed: make(chan struct{}),
	}, nil
}

const headerTimeout = 10 * time.Second

// Run serves the API until Stop.
func (a *Agent) Run(ctx context.Context) error {
	listener, err := a.listen(ctx)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: a.handler(), ReadHeaderTimeout: headerTimeout, ErrorLog: log.New(io.Discard, "", 0)}
	a.mu.Lock()
	a.server = server
	a.mu.Unlock()
	go func() { _ = server.Serve(listener) }() // It returns when Stop closes the server.
	return nil
}

// ServeRaw calls serve for each connection instead of serving the API, until ctx ends.
func (a *Agent) ServeRaw(ctx context.Context, serve func(net.Conn)) error {
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
				serve(conn)
			}()
		}
	}()
	return nil
}

func (a *Agent) listen(ctx context.Context) (net.Listener, error) {
	listen, address := (&net.ListenConfig{}).Listen, a.identity.Address
	if a.identity.Network != nil {
		address = "127.0.0.1:0"
	}
	if port := a.identity.Port; port != nil {
		listen = func(_ context.Context, _, address string) (net.Listener, error) { return port.listen(address) }
	}
	listener, err := listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot start the fake agent of %s: %w", a.identity.Pod, err)
	}
	a.identity.Network.route(a.identity.Address, listener.Addr().String())
	return tls.NewListener(listener, a.certificate.Server()), nil
}

// Stop closes the listener and all connections. Run can be called again.
func (a *Agent) Stop() error {
	a.mu.Lock()
	server := a.server
	a.server = nil
	a.mu.Unlock()
	if server == nil {
		return nil
	}
	a.identity.Network.route(a.identity.Address, "")
	return server.Close()
}

// CloseStreams ends all report streams.
func (a *Agent) CloseStreams() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.closed)
	a.closed = make(chan struct{})
}

// Streams returns the number of open streams that have sent the present state.
func (a *Agent) Streams() int { return int(a.streams.Load()) }

// Calls returns all commands that the agent received.
func (a *Agent) Calls() []Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// Refuse sets a function that decides about each command: the agent answers with the
// returned status and doesn't obey; 0 makes it obey.
func (a *Agent) Refuse(decide func(Call) int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = decide
}

// Report returns the agent's report about a group, if it is a member.
func (a *Agent) Report(group string) (control.Report, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.groups[group]
	if p == nil || p.left {
		return control.Report{}, false
	}
	return p.report, true
}

// AwaitGroup returns when the agent has joined a group.
func (a *Agent) AwaitGroup(ctx context.Context, group string) error {
	for {
		a.mu.Lock()
		changes := a.changes
		a.mu.Unlock()
		if _, ok := a.Report(group); ok {
			return nil
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return fmt.Errorf("%s hasn't received the document of group %s: %w", a.identity.Pod, group, ctx.Err())
		}
	}
}

// ChangeReport changes the report about a group. The agent joins the group if necessary.
func (a *Agent) ChangeReport(group string, change func(*control.Report)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.change(group, change)
}

func (a *Agent) change(group string, change func(*control.Report)) {
	p := a.groups[group]
	if p == nil {
		p = &groupState{}
		a.groups[group] = p
	}
	if p.left || p.change == 0 {
		p.report, p.left = control.Report{Group: group, Pod: a.identity.Pod}, false
	}
	change(&p.report)
	a.changed(p)
}

// Leave makes the agent leave a group and report that.
func (a *Agent) Leave(group string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.groups[group]; p != nil {
		p.left = true
		a.changed(p)
	}
}

// changed notifies the streams. The caller holds mu.
func (a *Agent) changed(p *groupState) {
	p.change++
	close(a.changes)
	a.changes = make(chan struct{})
}

var errNotMember = errors.New("the agent isn't a member of this group")
