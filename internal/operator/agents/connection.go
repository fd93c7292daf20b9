package agents

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Connection is the state of the connection to an agent.
type Connection struct {
	UID       types.UID
	Connected bool
	// Problem is the reason why the agent isn't connected. It is empty until the first attempt has failed.
	Problem string
	// Since is when Connected last changed.
	Since time.Time
	// Groups are those that the agent can join.
	Groups []string
	// Version is that of the agent, shortened to what a status can have.
	Version string
	// Identity is that of the agent's state directory: see control.Agent. It remains while the agent isn't connected.
	Identity string
}

// Accepts reports whether the agent is connected and can join a group.
func (c Connection) Accepts(group string) bool {
	return c.Connected && slices.Contains(c.Groups, group)
}

// Connection returns the state of the connection to a pod's agent; false if Streams doesn't follow it.
func (s *Streams) Connection(pod types.NamespacedName) (Connection, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	stream, ok := s.streams[pod]
	if !ok {
		return Connection{}, false
	}
	return stream.connection, true
}

// Connected returns the number of connected agents by version.
func (s *Streams) Connected() map[string]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	counts := map[string]int{}
	for _, stream := range s.streams {
		if stream.connection.Connected {
			counts[stream.connection.Version]++
		}
	}
	return counts
}

// setConnected marks the agent as connected, and removes the reports on groups that
// an earlier connection reported and this one doesn't. The parameter agent has what the agent says
// about itself. The context is done when the connection ends.
func (s *stream) setConnected(ctx context.Context, reported map[string]bool, agent Connection) {
	hub := s.streams
	hub.mu.Lock()
	var left []string
	for group := range s.tables {
		if !reported[group] {
			left = append(left, group)
		}
	}
	if !s.closed {
		agent.UID, agent.Connected, agent.Since = s.agent.UID, true, time.Now()
		s.connection = agent
		s.spawn, s.commands = func(run func(context.Context)) { hub.work.Go(func() { run(ctx) }) }, nil
	}
	hub.mu.Unlock()
	for _, group := range left {
		s.removeReport(group)
	}
	hub.options.Changed(s.agent.Pod, "")
}

// setDisconnected marks the agent as not connected, with the reason.
func (s *stream) setDisconnected(err error) {
	hub := s.streams
	problem := describe(err)
	if host, _, _ := net.SplitHostPort(s.agent.Address); hub.options.Refused != nil &&
		errors.Is(err, syscall.ECONNREFUSED) {
		problem = cmp.Or(hub.options.Refused(host), problem) // An agent listens as soon as it has a certificate.
	}
	hub.mu.Lock()
	changed := !s.closed && (s.connection.Connected || s.connection.Problem != problem)
	if s.connection.Connected {
		s.connection.Since = time.Now()
	}
	s.connection.Connected, s.connection.Problem = false, problem
	s.spawn, s.commands = nil, nil
	hub.mu.Unlock()
	if changed {
		hub.options.Changed(s.agent.Pod, "")
	}
}

// suspendCommands sends no more commands until the agent is connected again.
func (s *stream) suspendCommands() {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	s.spawn, s.commands = nil, nil
}
