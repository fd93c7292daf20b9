package streams

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const (
	// dialPatience is how long an address may take to accept a connection,
	dialPatience = 3 * time.Second
	// answerPatience a handshake, or an answer to begin.
	answerPatience = 5 * time.Second
	// turnPatience is how long a connection may wait for its handshake: less than
	// agents wait for that.
	turnPatience = 2 * time.Second
	// headerBuffer has room for the header of an answer; a longer one is read in parts.
	headerBuffer = 512
	// headerMax bounds a header: package http doesn't.
	headerMax = 16 << 10
	// refusalMax bounds what is read of an answer that isn't one of success.
	refusalMax = 4 << 10
)

// request is what an agent is asked, or told.
type request struct {
	method, path string
	body         []byte
}

// call is one request with its answer, on a connection of its own. Package http
// would keep two goroutines and eight kilobytes for each stream; and what is
// told is told so rarely that a connection wouldn't be there any more anyway.
type call struct {
	conn *tls.Conn
	// body is that of the answer.
	body io.Reader
	// groups are those that the agent's certificate is for.
	groups map[string]bool
	stop   func() bool
}

func (c *call) close() {
	c.stop()
	// Nothing is lost that had to be said: a farewell to one who may be dead isn't
	// worth waiting for.
	_ = c.conn.NetConn().Close()
}

// call asks an agent, and ends with the context at the latest.
func (s *Streams) call(ctx context.Context, agent Agent, r request) (*call, error) {
	conn, err := s.connect(ctx, agent)
	if err != nil {
		return nil, err
	}
	c := &call{conn: conn}
	c.stop = context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	if err := s.ask(ctx, c, agent, r); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// connect dials an agent, and shakes hands when it is its turn. Dialling takes no
// turn, or the pods of a dead node would take all of them for seconds. Where the
// turn was long in coming, the agent no longer waits, and is dialled once more.
func (s *Streams) connect(ctx context.Context, agent Agent) (*tls.Conn, error) {
	raw, err := s.options.Dial(ctx, "tcp", agent.Address)
	if err != nil {
		return nil, err
	}
	dialled := time.Now()
	select {
	case s.handshakes <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), raw.Close())
	}
	defer func() { <-s.handshakes }()
	if time.Since(dialled) > turnPatience {
		_ = raw.Close()
		if raw, err = s.options.Dial(ctx, "tcp", agent.Address); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	conn := tls.Client(raw, s.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

func (s *Streams) ask(ctx context.Context, c *call, agent Agent, r request) error {
	names, err := identity.PeerNames(c.conn.ConnectionState())
	if err != nil {
		return err
	}
	if c.groups = groupsOf(names, agent); len(c.groups) == 0 {
		return fmt.Errorf("its certificate is for %s, and not for pod %s", names, agent.Pod)
	}
	asked, err := http.NewRequestWithContext(ctx, r.method, "https://"+agent.Address+r.path, bytes.NewReader(r.body))
	if err != nil {
		return err
	}
	if r.body == nil {
		asked.Body = nil
	} else {
		asked.Header.Set("Content-Type", "application/json")
		asked.Close = true
	}
	if err := c.conn.SetDeadline(time.Now().Add(answerPatience)); err != nil {
		return err
	}
	if err := asked.Write(c.conn); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: c.conn, N: headerMax}
	answer, err := http.ReadResponse(bufio.NewReaderSize(limited, headerBuffer), asked) //nolint:bodyclose // it ends with the connection
	if err != nil {
		return err
	}
	limited.N = math.MaxInt64
	if answer.StatusCode/100 != 2 {
		return refused(answer)
	}
	// The body keeps the answer, which mustn't keep what nobody asks it for.
	answer.Request, answer.Header = nil, nil
	c.body = answer.Body
	return nil
}

// groupsOf are the groups in which a certificate is for the pod of the agent.
func groupsOf(names identity.Names, agent Agent) map[string]bool {
	groups := map[string]bool{}
	for _, name := range names {
		if name.Domain == agent.Pod.Namespace && name.Member == agent.Pod.Name {
			groups[name.Group] = true
		}
	}
	return groups
}

// refusal is an answer that isn't one of success.
type refusal struct {
	code   int
	reason string
}

func (e *refusal) Error() string { return fmt.Sprintf("it refuses (%d): %s", e.code, e.reason) }

// final reports whether asking again is useless.
func (e *refusal) final() bool {
	return e.code/100 == 4 && e.code != http.StatusTooManyRequests && e.code != http.StatusRequestTimeout
}

func refused(answer *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, refusalMax))
	if err != nil {
		return err
	}
	said := control.ErrorResponse{}
	if json.Unmarshal(text, &said) != nil || said.Error == "" {
		said.Error = http.StatusText(answer.StatusCode)
	}
	return &refusal{code: answer.StatusCode, reason: said.Error}
}

// explain says what is wrong in words that are the same at each attempt: they
// get into the group's status, which is written when it changes.
func explain(err error) string {
	var (
		operation *net.OpError
		number    syscall.Errno
	)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "it is silent"
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &operation):
		return operation.Err.Error()
	}
	return err.Error()
}
