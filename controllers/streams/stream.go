package streams

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/protocol/control"
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

	// Streams.mu guards what follows.
	cancel      context.CancelFunc
	incarnation int32
	connection  Connection
	// closed: Streams doesn't follow the agent anymore.
	closed bool
	// interrupt ends the wait for the next line of the connection; nil while there is none.
	// verified is when Verify last did that.
	interrupt func()
	verified  time.Time
	// groups are those that the agent reports.
	groups map[string]bool
	// spawn runs a function until the connection ends. It is nil while there is none.
	spawn    func(func(context.Context))
	commands map[string]*pendingCommand
}

func newStream(streams *Streams, agent Agent, incarnation int32) *stream {
	return &stream{
		streams: streams, agent: agent, retryNow: make(chan struct{}, 1),
		incarnation: incarnation, connection: Connection{UID: agent.UID, Since: time.Now()},
	}
}

// retry makes the next attempt start at once.
func (s *stream) retry() {
	select {
	case s.retryNow <- struct{}{}:
	default:
	}
}

// run connects to the agent, and reconnects whenever the connection ends.
func (s *stream) run(ctx context.Context) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		began := time.Now()
		current, err := s.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		if current && time.Since(began) > stableAfter {
			// Reconnect before reporting the end. If the agent has stopped, the attempt is
			// refused at once and gives the reason. If only the operator's certificate has
			// expired, which all agents notice at the same moment, nothing has changed.
			s.suspendCommands()
			attempt = -1
			continue
		}
		s.setDisconnected(err)
		select {
		case <-ctx.Done():
		case <-s.retryNow:
			attempt = -1
		case <-time.After(backoff(attempt)):
		}
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

// receive connects to the agent, and decodes its reports until the connection ends.
// It reports whether the agent had sent its complete initial state.
func (s *stream) receive(ctx context.Context) (current bool, err error) {
	response, err := s.streams.do(ctx, s.agent, request{method: http.MethodGet, path: control.ReportsPath + "?" + control.UnusualRowsQuery})
	if err != nil {
		return false, err
	}
	defer response.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.setInterrupt(func() { _ = response.conn.SetReadDeadline(time.Now()) })
	defer s.setInterrupt(nil)
	t := newThrottle(s, len(response.groups))
	defer t.close()
	d := &decoder{pod: s.agent.Pod.Name, groups: response.groups, throttle: t}
	lines := bufio.NewReaderSize(response.body, lineBuffer)
	for {
		if err := response.conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
			return t.current, err
		}
		line, err := readLine(lines)
		if err != nil {
			return t.current, closedByAgent(err)
		}
		if err := s.byteLimit.WaitN(ctx, lineCost+len(line)); err != nil {
			return t.current, err
		}
		if err := d.decode(ctx, line); err != nil {
			return t.current, err
		}
	}
}

const (
	// lineBuffer is small, since a stream can be idle for hours. readLine assembles a
	// longer line from several reads.
	lineBuffer = 512
	// maxLine is more than a report on a thousand members with the longest names.
	maxLine = 1 << 20
)

func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			return part[:len(part)-1], nil
		case err == nil:
			return append(long, part[:len(part)-1]...), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(long) > maxLine:
			return nil, fmt.Errorf("report must have at most %d bytes", maxLine)
		}
		long = append(long, part...)
	}
}

func closedByAgent(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("connection closed by the agent")
	}
	return err
}
