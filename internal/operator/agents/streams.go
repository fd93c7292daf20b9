// Package agents connects the operator to the agents. Each agent has one connection, over which it reports what has
// changed in its groups. Commands to an agent use connections of their own.
//
// A report takes one path:
//
//	connection (session.go) -> decoder -> throttle -> report store (reports.go) -> Options.Changed
//
// The package decides nothing. It stores each agent's latest report for each group,
// whether the agent is connected, and since when. All of it is in memory: a new
// operator connects again, and every agent begins by reporting all its groups.
//
// A stream uses one goroutine with a small stack, one connection and small buffers: there may be
// thousands of streams, and nearly all of them are idle nearly always.
package agents

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/net/fair"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// Credentials are those of the operator.
type Credentials interface {
	// Client returns a configuration for dialing an agent whose certificate has one of
	// the wanted names, or any name if wanted is empty: see identity.Files. It is called
	// once. Each handshake uses the certificates that are current by then.
	Client(wanted ...identity.Name) *tls.Config
}

// Agent is the location of a pod's agent.
type Agent struct {
	Pod types.NamespacedName
	UID types.UID
	// Address is an IP address and a port.
	Address string
	// Witness means that the pod is in the operator's namespace. Pod then has the namespace of the groups.
	Witness bool
}

// Options configure Streams.
type Options struct {
	Credentials Credentials
	// Changed is called after each change: of the report of the pod's agent on the
	// group, or, if group is empty, of the connection. It must not block.
	Changed func(pod types.NamespacedName, group string)
	// Dial connects to an agent; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Refused returns why the agent of a host has no certificate, or "". If it is nil, that isn't known.
	Refused func(host string) string
	Log     logr.Logger
}

// Streams are the connections to all agents.
type Streams struct {
	options Options
	config  *tls.Config
	// handshakes bounds the number of concurrent handshakes, for each namespace. An operator
	// that starts dials all agents at once, and each handshake takes a millisecond of CPU time.
	handshakes *fair.Semaphore[string]
	// decoding bounds how many long lines are decoded at a time, for each namespace.
	decoding *fair.Semaphore[string]
	tenants  tenants
	work     sync.WaitGroup

	mu sync.RWMutex
	// spawn runs a function until Start's context is done. It is nil before and after
	// Start, which starts the streams that were followed before.
	spawn   func(func(context.Context))
	streams map[types.NamespacedName]*stream
	// reporting has the streams with a report on a group, by the pod's name.
	reporting map[types.NamespacedName]map[string]*stream
	// tables has how many bytes the tables of a namespace's agents take.
	tables               map[string]int
	maxTablesOfNamespace int
	rejectedRetry        time.Duration
}

// maxHandshakes is more than enough to use all CPUs, and so is maxHandshakesPerNamespace. Whoever
// may create pods can let many of them accept connections and never shake hands, which takes
// responseTimeout each. The agents of other namespaces must not wait for that.
const (
	maxHandshakes             = 64
	maxHandshakesPerNamespace = maxHandshakes / 2
)

// New returns Streams that follow no agents yet.
func New(options Options) *Streams {
	if options.Dial == nil {
		// A stream ends when the agent has sent nothing for readTimeout, so TCP keepalives would detect nothing more.
		options.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: -1}).DialContext
	}
	return &Streams{
		options:    options,
		config:     options.Credentials.Client(),
		handshakes: fair.NewSemaphore[string](maxHandshakes, maxHandshakesPerNamespace),
		decoding:   fair.NewSemaphore[string](decoding, decodingOfTenant),
		streams:    map[types.NamespacedName]*stream{},
		reporting:  map[types.NamespacedName]map[string]*stream{},
		tables:     map[string]int{}, maxTablesOfNamespace: maxTablesOfNamespace, rejectedRetry: rejectedRetry,
	}
}

// NeedLeaderElection makes the manager start the streams in all replicas.
func (s *Streams) NeedLeaderElection() bool { return false }

// Start runs the streams until the context is done. It implements manager.Runnable.
func (s *Streams) Start(ctx context.Context) error {
	s.mu.Lock()
	s.spawn = func(run func(context.Context)) { s.work.Go(func() { run(ctx) }) }
	for _, stream := range s.streams {
		s.begin(stream)
	}
	s.mu.Unlock()
	<-ctx.Done()
	// Without spawn, Follow starts nothing, so the wait ends.
	s.mu.Lock()
	s.spawn = nil
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// begin starts a stream. The caller holds the lock.
func (s *Streams) begin(stream *stream) {
	s.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		stream.cancel = cancel
		closed := stream.closed
		s.mu.Unlock()
		if closed {
			cancel()
		}
		stream.run(ctx)
	})
}

// Follow keeps a stream open to the agent from now on. It replaces a stream to an earlier pod of the same name, or to
// another address. If incarnation differs from the previous call, the agent may have restarted: Follow retries at once.
func (s *Streams) Follow(agent Agent, incarnation int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.streams[agent.Pod]
	if old != nil && old.agent == agent {
		if old.incarnation != incarnation {
			old.incarnation = incarnation
			old.retry()
		}
		return
	}
	stream := newStream(s, agent, incarnation)
	if old != nil {
		s.end(old)
		if old.agent.UID == agent.UID { // The reports remain until the agent doesn't report them anymore.
			stream.reports, stream.tableSize = old.reports, old.tableSize
			for name := range stream.reports {
				s.setReporting(stream, name)
			}
		} else {
			s.removeReports(old)
		}
	}
	s.streams[agent.Pod] = stream
	if s.spawn != nil {
		s.begin(stream)
	}
}

// Forget ends the stream to a pod that no longer exists, and removes its reports.
func (s *Streams) Forget(pod types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.streams[pod]; old != nil {
		s.end(old)
		delete(s.streams, pod)
		s.removeReports(old)
	}
}

// end stops a stream. The caller holds the lock.
func (s *Streams) end(old *stream) {
	old.closed = true
	if old.cancel != nil {
		old.cancel()
	}
}
