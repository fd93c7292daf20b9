package streams

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Command is something that an agent has to be told.
type Command struct {
	// About is what is told: a newer errand about the same replaces this one.
	About string
	// Says tells apart what two errands about the same say.
	Says   string
	method string
	path   string
	body   []byte
}

// errand is one under way, or done with. Once another one has replaced it, over
// is closed; that one begins when done is.
type errand struct {
	says string
	// stale: the agent has said something since that makes it worth telling again.
	stale      bool
	over, done chan struct{}
}

// PushDocument tells an agent a group. The body is the document in JSON.
func PushDocument(group, uid, revision string, body []byte) Command {
	return Command{About: group, Says: "document " + uid + " " + revision, method: http.MethodPut, path: control.GroupPath(group), body: body}
}

// LeaveGroup has an agent leave the group of a UID.
func LeaveGroup(group, uid string) Command {
	return Command{About: group, Says: "leave " + uid, method: http.MethodDelete, path: control.GroupPath(group) + "?uid=" + uid}
}

// SetEligible tells an agent whether to stand.
func SetEligible(group string, standing bool) Command {
	says := `{"eligible":false}`
	if standing {
		says = `{"eligible":true}`
	}
	return Command{About: group + control.EligibilityPath, Says: says, method: http.MethodPut, path: control.GroupPath(group) + control.EligibilityPath, body: []byte(says)}
}

// Send has an agent be told something, in its own time: at once, and again until
// it has accepted or refused it. What was told last over the present connection
// isn't told again; who isn't connected isn't told anything. So whoever wants it
// told says so each time that it looks at the group.
func (s *Streams) Send(pod types.NamespacedName, e Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stream := s.streams[pod]
	if s.spawn == nil || stream == nil || stream.talk == nil || stream.over {
		return
	}
	last := stream.errands[e.About]
	if last != nil && last.says == e.Says && !last.stale {
		return
	}
	if stream.errands == nil {
		stream.errands = map[string]*errand{}
	}
	next := &errand{says: e.Says, over: make(chan struct{}), done: make(chan struct{})}
	stream.errands[e.About] = next
	if last != nil {
		close(last.over)
	}
	agent := stream.agent
	stream.talk(func(ctx context.Context) {
		defer close(next.done)
		if last != nil {
			// A call that is under way can't be taken back, and mustn't arrive later.
			<-last.done
		}
		s.tell(ctx, agent, e, next.over)
	})
}

// tell tells an agent until it has been told, or something else is to be told.
func (s *Streams) tell(ctx context.Context, agent Agent, e Command, over <-chan struct{}) {
	for attempt := 0; ctx.Err() == nil && !closed(over); attempt++ {
		c, err := s.call(ctx, agent, request{method: e.method, path: e.path, body: e.body})
		if err == nil {
			c.close()
			return
		}
		var no *refusal
		if errors.As(err, &no) && no.final() {
			s.options.Log.Info("an agent refuses what it is told", "pod", agent.Pod, "about", e.About, "reason", no.reason)
			return
		}
		select {
		case <-ctx.Done():
		case <-over:
		case <-time.After(backoff(attempt)):
		}
	}
}

func closed(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}
