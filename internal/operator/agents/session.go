package agents

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// session is one connection to an agent, over which reports arrive.
//
// Nearly always, it waits for the next report. A goroutine that has decoded a report has a stack of eight kilobytes, so
// it ends when there is nothing more to read, and another one with a stack of two waits.
type session struct {
	stream   *stream
	began    time.Time
	response *response
	lines    lineReader
	decoder  decoder
	throttle *throttle
	tenant   *tenant
	// The context ends with the session; its parent is that of the stream.
	ctx    context.Context //nolint:containedctx // goroutines pass the session on to each other
	parent context.Context //nolint:containedctx // see above
	cancel context.CancelFunc
}

// open connects to the agent.
func (s *stream) open(ctx context.Context) (*session, error) {
	began := time.Now()
	response, err := s.streams.do(ctx, s.agent, request{method: http.MethodGet, path: control.ReportsPath})
	if err == nil {
		err = response.stopWaiting()
	}
	if err == nil {
		err = response.extendDeadline()
	}
	if err != nil {
		if response != nil {
			response.close()
		}
		return nil, err
	}
	groups := len(response.groups)
	if s.agent.Witness {
		groups = witnessGroups
	}
	t, of := newThrottle(s, groups), s.streams.tenants.enter(s.agent.Pod.Namespace)
	c := &session{
		stream: s, began: began, response: response, lines: newLineReader(response.body, of.keep), throttle: t, tenant: of,
		decoder: decoder{pod: s.agent.Pod.Name, groups: response.groups, witness: s.agent.Witness, throttle: t},
		parent:  ctx,
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	s.setInterrupt(func() { _ = response.conn.SetReadDeadline(time.Now()) })
	return c, nil
}

// begin reads what has arrived with the header of the response. There may be nothing to wait
// for: the agent sends its reports at once.
func (c *session) begin() { c.proceed(nil) }

// wait waits until there is something to read.
func (c *session) wait() { c.proceed(c.response.await()) }

// proceed reads reports if there was no error, and lets another goroutine wait for the next
// ones. At the end of the connection, it reconnects.
func (c *session) proceed(err error) {
	if err == nil {
		err = c.read()
	}
	if err == nil {
		c.stream.streams.work.Go(c.wait)
		return
	}
	c.end(err)
	c.stream.run(c.parent)
}

// read decodes the reports that have arrived. It returns an error at the end of the connection.
func (c *session) read() error {
	for {
		line, err := c.lines.next()
		switch {
		case errors.Is(err, errNoData):
			return nil
		case err != nil:
			return closedByAgent(err)
		}
		if err := c.await(c.ctx, len(line)); err != nil {
			return err
		}
		if err := c.decode(line); err != nil {
			return err
		}
		if err := c.response.extendDeadline(); err != nil {
			return err
		}
	}
}

// end closes the session, and waits until it is time to reconnect.
func (c *session) end(err error) {
	c.throttle.close()
	c.lines.discard()
	c.stream.streams.tenants.leave(c.stream.agent.Pod.Namespace)
	c.stream.setInterrupt(nil)
	c.cancel()
	c.response.close()
	if c.throttle.current && time.Since(c.began) > stableAfter && c.parent.Err() == nil {
		// Reconnect before reporting the end. If the agent has stopped, the attempt is refused at once and gives the reason.
		// If only the operator's certificate has expired, which all agents notice at the same moment, nothing has changed.
		c.stream.suspendCommands()
		c.stream.attempts = 0
		return
	}
	c.stream.failed(c.parent, err)
}

func closedByAgent(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("connection closed by the agent")
	}
	return err
}
