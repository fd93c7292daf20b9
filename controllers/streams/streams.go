// Package streams hears the agents: one connection to each, over which it says
// what has changed in its groups, and calls when it has to be told something.
//
// It decides nothing. What was last heard is kept, and whether the agent is
// connected now, and since when; what that means, its callers know. All of it is
// in memory: a new operator asks again, and every agent begins by telling all.
//
// A stream is one goroutine with one connection and small buffers, for there may
// be thousands, of which nearly all are silent nearly always.
package streams

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// Credentials are those of the operator.
type Credentials interface {
	// Client is how an agent is dialled that may speak for one of wanted, or for
	// anyone if wanted is empty: see identity.Files. It is asked once, and goes by
	// the certificates of the moment at each handshake.
	Client(wanted ...identity.Name) *tls.Config
}

// Agent is where the agent of one pod is awaited.
type Agent struct {
	Pod types.NamespacedName
	UID types.UID
	// Address is an IP and a port.
	Address string
}

// Connection is the connection with an agent.
type Connection struct {
	UID       types.UID
	Connected bool
	// Problem is why it isn't connected. It is empty until that is known.
	Problem string
	// Since is when Connected last changed.
	Since time.Time
	// Groups are those that the agent can take part in.
	Groups []string
}

// Accepts reports whether the agent is connected, and can be told about a group.
func (l Connection) Accepts(group string) bool {
	return l.Connected && slices.Contains(l.Groups, group)
}

// AgentReport is what one agent last said about one group, and when it said what the
// operator has to remember. Times are of the operator's clock.
type AgentReport struct {
	UID    types.UID
	Report *control.Report
	// Adopted is since when the version in the report has been reported.
	Adopted time.Time
	// Named is when the coordinator in the report was first named, in its term.
	Named time.Time
	// Lost is when it last stopped naming a coordinator as it had.
	Lost time.Time
}

// Options are what Streams need.
type Options struct {
	Credentials Credentials
	// Changed is told of whatever has changed: in what the pod's agent says about the
	// group, or, if that is empty, in the connection. It mustn't block.
	Changed func(pod types.NamespacedName, group string)
	// Dial connects; nil is the usual way.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Log  logr.Logger
}

// Streams are the connections with all agents.
type Streams struct {
	options Options
	config  *tls.Config
	// handshakes bounds how many are under way: when an operator starts, it dials
	// all agents at once, and each handshake takes a millisecond of a processor.
	handshakes chan struct{}
	work       sync.WaitGroup

	mu sync.RWMutex
	// spawn runs something until Start's context is done. It is nil before and
	// after Start: what is followed before begins with it.
	spawn   func(func(context.Context))
	streams map[types.NamespacedName]*stream
	voices  map[types.NamespacedName]map[string]AgentReport
}

// handshakesMax is more than enough for all processors.
const handshakesMax = 64

// New makes Streams that follow nobody yet.
func New(options Options) *Streams {
	if options.Dial == nil {
		// Whoever is silent for too long is given up, so there is nothing for
		// probes of the kernel to find out.
		options.Dial = (&net.Dialer{Timeout: dialPatience, KeepAlive: -1}).DialContext
	}
	return &Streams{
		options:    options,
		config:     options.Credentials.Client(),
		handshakes: make(chan struct{}, handshakesMax),
		streams:    map[types.NamespacedName]*stream{},
		voices:     map[types.NamespacedName]map[string]AgentReport{},
	}
}

// Start runs the streams until the context is done. It is a manager's Runnable,
// of the one that leads.
func (s *Streams) Start(ctx context.Context) error {
	s.mu.Lock()
	s.spawn = func(run func(context.Context)) { s.work.Go(func() { run(ctx) }) }
	for _, stream := range s.streams {
		s.begin(stream)
	}
	s.mu.Unlock()
	<-ctx.Done()
	// From here on nobody is followed, so the count can only fall.
	s.mu.Lock()
	s.spawn = nil
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// begin is called with the lock held.
func (s *Streams) begin(stream *stream) {
	s.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s.mu.Lock()
		stream.cancel = cancel
		over := stream.over
		s.mu.Unlock()
		if !over {
			stream.run(ctx)
		}
	})
}

// Follow has the agent's stream be open from now on. That of an earlier pod of
// the name, or at another address, is given up. If life isn't what it was, the
// agent may have been started since, and is tried at once.
func (s *Streams) Follow(agent Agent, life int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.streams[agent.Pod]
	if old != nil && old.agent == agent {
		if old.life != life {
			old.life = life
			old.hurry()
		}
		return
	}
	if old != nil {
		s.end(old)
		if old.agent.UID != agent.UID {
			s.silence(agent.Pod)
		}
	}
	stream := &stream{
		streams: s, agent: agent, now: make(chan struct{}, 1),
		life: life, line: Connection{UID: agent.UID, Since: time.Now()},
	}
	s.streams[agent.Pod] = stream
	if s.spawn != nil {
		s.begin(stream)
	}
}

// Forget ends the stream of a pod that is gone.
func (s *Streams) Forget(pod types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.streams[pod]; old != nil {
		s.end(old)
		delete(s.streams, pod)
	}
	s.silence(pod)
}

// end is called with the lock held.
func (s *Streams) end(old *stream) {
	old.over = true
	if old.cancel != nil {
		old.cancel()
	}
}

// silence forgets what a pod's agent has said, with the lock held.
func (s *Streams) silence(pod types.NamespacedName) {
	for group, voices := range s.voices {
		if group.Namespace == pod.Namespace {
			s.drop(group, voices, pod.Name)
		}
	}
}

func (s *Streams) drop(group types.NamespacedName, voices map[string]AgentReport, pod string) {
	delete(voices, pod)
	if len(voices) == 0 {
		delete(s.voices, group)
	}
}

// Connection is the connection with a pod's agent; false if it isn't followed.
func (s *Streams) Connection(pod types.NamespacedName) (Connection, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	stream, ok := s.streams[pod]
	if !ok {
		return Connection{}, false
	}
	return stream.line, true
}

// Reports are what agents last said about a group, by their pods' names.
func (s *Streams) Reports(group types.NamespacedName) map[string]AgentReport {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.voices[group])
}

// Groups are those that a pod's agent reports.
func (s *Streams) Groups(pod types.NamespacedName) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	stream, ok := s.streams[pod]
	if !ok {
		return nil
	}
	var groups []string
	for group := range stream.groups {
		groups = append(groups, group)
	}
	return groups
}

// Connected is how many agents are connected.
func (s *Streams) Connected() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	count := 0
	for _, stream := range s.streams {
		if stream.line.Connected {
			count++
		}
	}
	return count
}
