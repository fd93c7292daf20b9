package agents

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
	// dialTimeout bounds how long an address may take to accept a connection.
	dialTimeout = 3 * time.Second
	// responseTimeout bounds a handshake, and the wait for the header of a response.
	responseTimeout = 5 * time.Second
	// maxHandshakeDelay bounds how long a connection may wait for its handshake. It is
	// less than the time after which agents close such a connection.
	maxHandshakeDelay = 2 * time.Second
	// headerBuffer has room for the header of a response; a longer one is read in parts.
	headerBuffer = 512
	// maxHeader bounds a header: package http doesn't.
	maxHeader = 16 << 10
	// maxErrorBody bounds what is read of a response that reports a failure.
	maxErrorBody = 4 << 10
)

type request struct {
	method, path string
	body         []byte
}

// response is the response to a request, on a connection of its own. An http.Client would use two goroutines and eight
// kilobytes for each stream. Commands are so rare that it would have closed an idle connection before the next one.
type response struct {
	conn *tls.Conn
	raw  *agentConn
	body io.Reader
	// plain: body reads from the connection, and has no state that an error would end.
	plain bool
	// groups are those that the agent's certificate is for, none of a witness.
	groups map[string]bool
	stop   func() bool
}

// stopWaiting makes reads of the body return errNoData where they would wait. If the body isn't plain, they still wait.
func (r *response) stopWaiting() error {
	if !r.plain {
		return nil
	}
	return r.raw.stopWaiting()
}

// await waits until there is something to read, if reads don't wait.
func (r *response) await() error {
	if r.raw.raw == nil {
		return nil
	}
	return r.raw.await()
}

// extendDeadline sets the time until which the agent must send something.
func (r *response) extendDeadline() error { return r.conn.SetReadDeadline(time.Now().Add(readTimeout)) }

func (r *response) close() {
	r.stop()
	// Close without a TLS alert: no data can be lost, and writing to an agent that may have died could block.
	_ = r.conn.NetConn().Close()
}

// do sends a request to an agent. The response ends with the context at the latest.
func (s *Streams) do(ctx context.Context, agent Agent, req request) (*response, error) {
	conn, err := s.connect(ctx, agent)
	if err != nil {
		return nil, err
	}
	raw, _ := conn.NetConn().(*agentConn)
	resp := &response{conn: conn, raw: raw}
	resp.stop = context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	if err := s.roundTrip(ctx, resp, agent, req); err != nil {
		resp.close()
		return nil, err
	}
	return resp, nil
}

// connect dials an agent, and waits for its turn to shake hands. Dialing takes no turn: otherwise the pods of a dead
// node would take all turns for seconds. After a long wait the agent has closed the connection, so connect dials again.
func (s *Streams) connect(ctx context.Context, agent Agent) (*tls.Conn, error) {
	raw, err := s.options.Dial(ctx, "tcp", agent.Address)
	if err != nil {
		return nil, err
	}
	dialed := time.Now()
	release, err := s.handshakes.Acquire(ctx, agent.Pod.Namespace)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	defer release()
	if time.Since(dialed) > maxHandshakeDelay {
		_ = raw.Close()
		if raw, err = s.options.Dial(ctx, "tcp", agent.Address); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	conn := tls.Client(&agentConn{Conn: raw}, s.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

func (s *Streams) roundTrip(ctx context.Context, resp *response, agent Agent, req request) error {
	names, err := identity.PeerNames(resp.conn.ConnectionState())
	if err != nil {
		return err
	}
	if resp.groups = certifiedGroups(names, agent); len(resp.groups) == 0 &&
		!(agent.Witness && names.Has(control.Witness(agent.Pod.Name))) {
		return fmt.Errorf("certificate must be for pod %s, got %s", agent.Pod, names)
	}
	uid := identity.PeerUID(resp.conn.ConnectionState())
	if (uid != "" || agent.Witness) && uid != string(agent.UID) {
		return fmt.Errorf("certificate must be for the pod with UID %s, got %s", agent.UID, uid)
	}
	path := req.path
	if agent.Witness {
		path = control.NamespacePath(agent.Pod.Namespace) + path
	}
	sent, err := http.NewRequestWithContext(ctx, req.method, "https://"+agent.Address+path, bytes.NewReader(req.body))
	if err != nil {
		return err
	}
	if req.body == nil {
		sent.Body = nil
	} else {
		sent.Header.Set("Content-Type", "application/json")
		sent.Close = true
	}
	if err := resp.conn.SetDeadline(time.Now().Add(responseTimeout)); err != nil {
		return err
	}
	if err := write(sent, resp.conn); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: resp.conn, N: maxHeader}
	reader := bufio.NewReaderSize(limited, headerBuffer)
	received, err := http.ReadResponse(reader, sent) //nolint:bodyclose // it ends with the connection
	if err != nil {
		return err
	}
	limited.N = math.MaxInt64
	if received.StatusCode/100 != 2 {
		return readError(received)
	}
	if received.ContentLength < 0 && len(received.TransferEncoding) == 0 {
		resp.body, resp.plain = reader, true // Without what package http would retain for the body.
		return nil
	}
	// The body refers to the response. Release what the response refers to in turn.
	received.Request, received.Header = nil, nil
	resp.body = received.Body
	return nil
}

// write sends a request. Without a body, as for a stream of reports, it is of HTTP/1.0: the
// response is then not in chunks, whose reader takes memory for as long as the stream lasts.
func write(r *http.Request, conn io.Writer) error {
	if r.Body != nil {
		return r.Write(conn)
	}
	_, err := fmt.Fprintf(conn, "%s %s HTTP/1.0\r\nHost: %s\r\n\r\n", r.Method, r.URL.RequestURI(), r.Host)
	return err
}

// certifiedGroups returns the groups in which a certificate is for the agent's pod.
func certifiedGroups(names identity.Names, agent Agent) map[string]bool {
	groups := map[string]bool{}
	for _, name := range names {
		if name.Domain == agent.Pod.Namespace && name.Member == agent.Pod.Name {
			groups[name.Group] = true
		}
	}
	return groups
}

// statusError is a response that reports a failure.
type statusError struct {
	code   int
	reason string
	// revision is the lowest one that the agent accepts, if it has refused a document because of that.
	revision int64
}

func (e *statusError) Error() string {
	return fmt.Sprintf("request rejected with status %d: %s", e.code, e.reason)
}

// permanent reports whether the same request would fail again.
func (e *statusError) permanent() bool {
	return e.code/100 == 4 && e.code != http.StatusTooManyRequests && e.code != http.StatusRequestTimeout
}

func readError(received *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(received.Body, maxErrorBody))
	if err != nil {
		return err
	}
	body := control.ErrorResponse{}
	if json.Unmarshal(text, &body) != nil || body.Error == "" {
		body.Error = http.StatusText(received.StatusCode)
	}
	return &statusError{code: received.StatusCode, reason: body.Error, revision: body.Revision}
}

// describe describes an error in a text that is the same for each attempt: a changed text would trigger a reconcile.
func describe(err error) string {
	var (
		operation *net.OpError
		number    syscall.Errno
	)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &operation):
		return operation.Err.Error()
	}
	return err.Error()
}
