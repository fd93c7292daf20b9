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

	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
)

// Agent returns what is known about a pod's agent in a group; false if Streams doesn't follow this pod.
func (s *Streams) Agent(pod types.NamespacedName, uid types.UID, group string) (facts.Agent, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	stream := s.streams[pod]
	if stream == nil || stream.agent.UID != uid { // It may still be to an earlier pod of the name.
		return facts.Agent{}, false
	}
	agent, stored := stream.state, stream.reports[group]
	agent.NotInGroup = agent.Connected && !stream.agent.Witness && !slices.Contains(stream.groups, group)
	agent.Required = stream.outdated[group].revision
	agent.Report, agent.AdoptedAt = stored.report, stored.adoptedAt
	return agent, true
}

// Connected returns the number of connected agents by version.
func (s *Streams) Connected() map[string]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	counts := map[string]int{}
	for _, stream := range s.streams {
		if stream.state.Connected {
			counts[stream.state.Version]++
		}
	}
	return counts
}

// setConnected marks the agent as connected, and removes the reports on groups that an earlier connection reported and
// this one doesn't. The parameter agent has what the agent says about itself, and groups those that it can join. The
// context is done when the connection ends.
func (s *stream) setConnected(ctx context.Context, reported map[string]bool, agent facts.Agent, groups []string) {
	hub := s.streams
	hub.mu.Lock()
	var left []string
	for group := range s.reports {
		if !reported[group] {
			left = append(left, group)
		}
	}
	if !s.closed {
		agent.Connected = true
		s.state, s.groups, s.since = agent, groups, time.Now()
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
	changed := !s.closed && (s.state.Connected || s.state.Problem != problem)
	s.state.Connected, s.state.Problem = false, problem
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
