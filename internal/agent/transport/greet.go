package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
)

// greet makes a connection with a peer out of a raw one: TLS, then a Hello each
// way. The peer that was called must be who was meant; a caller's name is "".
func (m *Transport) greet(ctx context.Context, raw net.Conn, called string) (*conn, error) {
	if err := raw.SetDeadline(time.Now().Add(m.HandshakeTimeout)); err != nil {
		return nil, err
	}
	stream, shown, err := m.secure(ctx, raw, called != "")
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(stream, readBuffer)
	hello, err := m.exchange(stream, reader)
	if err != nil {
		return nil, err
	}
	if err := m.trust(hello, shown.members, called); err != nil {
		return nil, err
	}
	if err := m.compareClocks(hello); err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(raw.RemoteAddr().String())
	if err != nil {
		return nil, err
	}
	place := net.JoinHostPort(host, strconv.Itoa(int(hello.Port)))
	if called != "" {
		place = raw.RemoteAddr().String()
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return newConn(m, raw, stream, reader, hello, shown, place), nil
}

// credentials are what a peer's certificate says.
type credentials struct {
	// members are the names under which it may speak, by group; nil: any.
	members map[string]string
	// until is when that ends, zero: never.
	until time.Time
}

// secure runs the TLS handshake, if there is one to run.
func (m *Transport) secure(ctx context.Context, raw net.Conn, calling bool) (net.Conn, credentials, error) {
	if m.Security == nil {
		return raw, credentials{}, nil
	}
	var secured *tls.Conn
	if calling {
		secured = tls.Client(raw, m.Security.Client())
	} else {
		secured = tls.Server(raw, m.Security.Server())
	}
	ctx, cancel := context.WithTimeout(ctx, m.HandshakeTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, credentials{}, fmt.Errorf("handshake: %w", err)
	}
	state := secured.ConnectionState()
	members, err := m.Security.Members(state)
	if err != nil {
		return nil, credentials{}, err
	}
	if members == nil {
		members = map[string]string{}
	}
	return secured, credentials{members, state.PeerCertificates[0].NotAfter}, nil
}

func (m *Transport) exchange(stream io.Writer, reader *bufio.Reader) (*wire.Hello, error) {
	_, port, err := net.SplitHostPort(m.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	mine := &wire.Hello{Protocol: wire.Protocol, Domain: m.Domain, Name: m.Self, Life: m.Life, Port: uint16(number)}
	if m.CurrentTerm != nil {
		mine.Term = m.CurrentTerm()
	}
	if _, err := stream.Write(wire.Append(nil, wire.Frame{Hello: mine})); err != nil {
		return nil, err
	}
	size, err := wire.ReadSize(reader, wire.MaxHello)
	if err != nil {
		return nil, err
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(reader, body); err != nil {
		return nil, err
	}
	frame, err := wire.Parse(body)
	if err != nil {
		return nil, err
	}
	if frame.Hello == nil {
		return nil, errors.New("the first frame is not a Hello")
	}
	return frame.Hello, nil
}

// trust checks what the peer says of itself against its certificate. With plain
// TCP there is none, and its word counts.
func (m *Transport) trust(hello *wire.Hello, members map[string]string, called string) error {
	switch {
	case hello.Protocol != wire.Protocol:
		return fmt.Errorf("the peer speaks version %d of the protocol instead of %d", hello.Protocol, wire.Protocol)
	case hello.Domain != m.Domain:
		return fmt.Errorf("the peer is of the domain %q instead of %q", hello.Domain, m.Domain)
	case called != "" && hello.Name != called:
		return fmt.Errorf("the peer is %q instead of %q", hello.Name, called)
	case hello.Name == m.Self:
		return errors.New("the peer has the name of this agent")
	case hello.Life == 0 || hello.Port == 0:
		return errors.New("the peer's Hello lacks its life or its port")
	}
	if members == nil {
		return nil
	}
	for _, member := range members {
		if member == hello.Name {
			return m.admit(hello.Name, members)
		}
	}
	return fmt.Errorf("the certificate of %q is not one for that name in the domain %q", hello.Name, m.Domain)
}

func (m *Transport) admit(peer string, members map[string]string) error {
	if m.Authorize == nil {
		return nil
	}
	return m.Authorize(peer, members)
}

// readingsApart is by how many terms, tenths of a second, clocks may differ. An
// office understands messages that are twice as far ahead, so that there is
// room for a clock that is read late.
const readingsApart = 300

// compareClocks refuses a peer whose term clock can't be right, if this one's is:
// it would deafen one of the two, and could keep the rest from electing anyone.
func (m *Transport) compareClocks(hello *wire.Hello) error {
	if m.CurrentTerm == nil {
		return nil
	}
	apart := int64(hello.Term - m.CurrentTerm())
	if -readingsApart <= apart && apart <= readingsApart {
		m.solve(hello.Name)
		return nil
	}
	direction := "ahead of"
	if apart < 0 {
		direction, apart = "behind", -apart
	}
	err := fmt.Errorf("the clock of %s was %s %s ours when the two processes started: set the clocks right, "+
		"and restart the agent whose was wrong", hello.Name, time.Duration(apart)*time.Second/10, direction)
	if m.note(hello.Name, problem{kind: direction, text: err.Error()}) {
		m.Log.Error("a peer isn't connected with", "peer", hello.Name, "error", err)
	}
	return err
}
