package agents

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
)

const (
	// initialBackoff and maxBackoff bound the wait before another attempt.
	initialBackoff = 20 * time.Millisecond
	maxBackoff     = 5 * time.Second
	// readTimeout is three times the interval at which an idle agent sends comments.
	readTimeout = 15 * time.Second
	// stableAfter is how long a stream must have lasted before its end resets the backoff.
	stableAfter = time.Second
)

// stream is the connection to one agent, across reconnects.
type stream struct {
	streams *Streams
	agent   Agent
	// retryNow interrupts the backoff.
	retryNow chan struct{}
	// The limits, see throttle, apply to the agent across all its connections.
	reportLimit, byteLimit *rate.Limiter
	// attempts counts the connections that failed, or lasted for less than stableAfter.
	attempts int

	// Streams.mu guards what follows.
	cancel      context.CancelFunc
	incarnation int32
	// state is what doesn't depend on a group, and groups has those that the agent can join, both since it was last
	// connected. since is when that was.
	state  facts.Agent
	groups []string
	since  time.Time
	// closed: Streams doesn't follow the agent anymore.
	closed bool
	// interrupt ends the wait for the next line of the connection; nil while there is none.
	// verified is when Verify last did that.
	interrupt func()
	verified  time.Time
	// reports has the latest ones by group, and tableSize how many bytes their tables take.
	reports   map[string]stored
	tableSize int
	// outdated has, by group, the lowest revisions that the agent accepts, if it has refused a document because of that.
	outdated map[string]outdated
	// spawn runs a function until the connection ends. It is nil while there is none.
	spawn    func(func(context.Context))
	commands map[string]*pendingCommand
}

func newStream(streams *Streams, agent Agent, incarnation int32) *stream {
	return &stream{
		streams: streams, agent: agent, retryNow: make(chan struct{}, 1), incarnation: incarnation,
	}
}

// retry makes the next attempt start at once.
func (s *stream) retry() {
	select {
	case s.retryNow <- struct{}{}:
	default:
	}
}

// run connects to the agent. It ends when a session has begun, which calls it again at its end.
func (s *stream) run(ctx context.Context) {
	for ctx.Err() == nil {
		session, err := s.open(ctx)
		if err == nil {
			s.streams.work.Go(session.begin)
			return
		}
		s.failed(ctx, err)
	}
}

// failed marks the agent as not connected, and waits before the next attempt.
func (s *stream) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.setDisconnected(err)
	select {
	case <-ctx.Done():
	case <-s.retryNow:
		s.attempts = 0
	case <-time.After(backoff(s.attempts)):
		s.attempts++
	}
}

// backoff returns the wait after a number of attempts. Half of it is random:
// otherwise all streams to a node that recovers would retry at once.
func backoff(attempt int) time.Duration {
	wait := maxBackoff
	if attempt < 8 {
		wait = min(initialBackoff<<max(attempt, 0), maxBackoff)
	}
	return wait/2 + rand.N(wait/2)
}
