package streams

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/control"
)

// Errand is something that an agent has to be told.
type Errand struct {
	// About is what is told: a newer errand about the same replaces this one.
	About string
	// Says tells apart what two errands about the same say.
	Says   string
	method string
	path   string
	body   []byte
}

// errand is one under way, or done with.
type errand struct {
	says   string
	cancel context.CancelFunc
}

// Document tells an agent a group. The body is the document in JSON.
func Document(group, uid, revision string, body []byte) Errand {
	return Errand{About: group, Says: "document " + uid + " " + revision, method: http.MethodPut, path: control.GroupPath(group), body: body}
}

// Leave has an agent leave the group of a UID.
func Leave(group, uid string) Errand {
	return Errand{About: group, Says: "leave " + uid, method: http.MethodDelete, path: control.GroupPath(group) + "?uid=" + uid}
}

// Standing tells an agent whether to stand.
func Standing(group string, standing bool) Errand {
	says := `{"standing":false}`
	if standing {
		says = `{"standing":true}`
	}
	return Errand{About: group + control.Standing, Says: says, method: http.MethodPut, path: control.GroupPath(group) + control.Standing, body: []byte(says)}
}

// Tell has an agent be told something, in its own time: at once, and again until
// it has accepted or refused it. What was told last over the present connection
// isn't told again; who isn't connected isn't told anything. So whoever wants it
// told says so each time that it looks at the group.
func (s *Streams) Tell(pod types.NamespacedName, e Errand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stream := s.streams[pod]
	if s.running == nil || stream == nil || stream.talk == nil || stream.over {
		return
	}
	if last := stream.errands[e.About]; last != nil {
		if last.says == e.Says {
			return
		}
		last.cancel()
	}
	if stream.errands == nil {
		stream.errands = map[string]*errand{}
	}
	ctx, cancel := context.WithCancel(stream.talk)
	stream.errands[e.About] = &errand{says: e.Says, cancel: cancel}
	agent := stream.agent
	s.work.Go(func() {
		defer cancel()
		s.tell(ctx, agent, e)
	})
}

// tell tells an agent until it has been told.
func (s *Streams) tell(ctx context.Context, agent Agent, e Errand) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
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
		case <-time.After(backoff(attempt)):
		}
	}
}
