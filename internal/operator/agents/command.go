package agents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Command is a request that the operator sends to an agent.
type Command struct {
	// Subject is what the command is about. A newer command replaces one with the same subject.
	Subject string
	// Content distinguishes commands with the same subject.
	Content  string
	method   string
	path     string
	body     []byte
	document bool
}

// rejectedRetry is the wait before a document that an agent has rejected is sent again. Whatever was the reason, for
// example the clock of its node, may have ended by then. It also bounds how often an agent can make the operator
// publish another revision.
const rejectedRetry = time.Minute

// pendingCommand is a command that is being sent, or has been. When another one with
// the same subject replaces it, replaced is closed; that one begins when done is closed.
type pendingCommand struct {
	content string
	// stale: the agent has reported since, so the same command is worth repeating.
	stale          bool
	replaced, done chan struct{}
}

// PushDocument sends a group's document, in JSON.
func PushDocument(group, uid string, revision int64, body []byte) Command {
	return Command{
		Subject: group, Content: fmt.Sprintf("document %s %d", uid, revision), method: http.MethodPut,
		path: control.GroupPath(group), body: body, document: true,
	}
}

// LeaveGroup makes an agent leave the group with a UID, unless it has a document with a higher revision.
func LeaveGroup(group, uid string, revision int64) Command {
	path := fmt.Sprintf("%s?uid=%s&revision=%d", control.GroupPath(group), uid, revision)
	return Command{Subject: group, Content: "leave " + path, method: http.MethodDelete, path: path}
}

// SetEligible excludes a member, or makes it eligible again.
func SetEligible(group string, eligible bool) Command {
	body := `{"eligible":false}`
	if eligible {
		body = `{"eligible":true}`
	}
	return Command{
		Subject: group + control.EligibilityPath, Content: body, method: http.MethodPut,
		path: control.GroupPath(group) + control.EligibilityPath, body: []byte(body),
	}
}

// Send sends a command to an agent in the background, and retries until the agent has accepted or rejected it.
//
// Send doesn't repeat the latest command over the present connection, and drops commands to an agent that isn't
// connected. So the caller calls Send in each reconcile in which the command is still needed.
func (s *Streams) Send(pod types.NamespacedName, c Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stream := s.streams[pod]
	if s.spawn == nil || stream == nil || stream.spawn == nil || stream.closed {
		return
	}
	last := stream.commands[c.Subject]
	if last != nil && last.content == c.Content && !last.stale {
		return
	}
	if stream.commands == nil {
		stream.commands = map[string]*pendingCommand{}
	}
	next := &pendingCommand{content: c.Content, replaced: make(chan struct{}), done: make(chan struct{})}
	stream.commands[c.Subject] = next
	if last != nil {
		close(last.replaced)
	}
	stream.spawn(func(ctx context.Context) {
		defer close(next.done)
		if last != nil {
			// A request that has been sent can't be revoked, and must not arrive later.
			<-last.done
		}
		s.sendUntilDone(ctx, stream, c, next.replaced)
	})
}

// Sent reports whether a command is the latest one with its subject over the present connection.
func (s *Streams) Sent(pod types.NamespacedName, c Command) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	stream := s.streams[pod]
	return stream != nil && stream.commands[c.Subject] != nil && stream.commands[c.Subject].content == c.Content
}

// sendUntilDone sends a command until the agent has accepted or rejected it, or
// another one has replaced it. A document that was rejected may be accepted later.
func (s *Streams) sendUntilDone(ctx context.Context, stream *stream, c Command, replaced <-chan struct{}) {
	agent := stream.agent
	for attempt := 0; ctx.Err() == nil && !isClosed(replaced); attempt++ {
		wait := backoff(attempt)
		resp, err := s.do(ctx, agent, request{method: c.method, path: c.path, body: c.body})
		if err == nil {
			resp.close()
			return
		}
		var rejected *statusError
		if errors.As(err, &rejected) && rejected.permanent() {
			s.options.Log.Info("agent rejected command", "pod", agent.Pod, "subject", c.Subject, "reason", rejected.reason)
			if !c.document {
				return
			}
			stream.setOutdated(c.Subject, rejected)
			wait = s.rejectedRetry
		}
		select {
		case <-ctx.Done():
		case <-replaced:
		case <-time.After(wait):
		}
	}
}

// invalidateEligibility makes Send repeat the command that sets a group's eligibility:
// the agent may have joined the group again since, or have rejected the command
// because no other member was eligible. The caller holds the lock of Streams.
func (s *stream) invalidateEligibility(group string) {
	if c := s.commands[group+control.EligibilityPath]; c != nil {
		c.stale = true // Also if it is being sent: the response may be older than the report.
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
