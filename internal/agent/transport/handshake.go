package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/net/connlimit"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// handshake turns a TCP connection into a connection with a peer: TLS, then a Hello in each direction. On the dialing
// side, dialed is the name that the peer must have. On the accepting side, it is empty.
// secured is what a Front has made of it, or nil.
func (t *Transport) handshake(ctx context.Context, raw net.Conn, secured *tls.Conn, dialed string) (*conn, error) {
	if err := raw.SetDeadline(time.Now().Add(t.HandshakeTimeout)); err != nil {
		return nil, err
	}
	stream, shown, err := t.startTLS(ctx, raw, secured, dialed != "")
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(stream, readBuffer)
	hello, err := t.exchangeHellos(stream, reader, dialed)
	if err != nil {
		return nil, err
	}
	if err := t.checkHello(hello, &shown, dialed); err != nil {
		return nil, err
	}
	if err := t.uids.check(hello.Name, shown.uid, shown.witness != ""); err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(raw.RemoteAddr().String())
	if err != nil {
		return nil, err
	}
	listenAddress := net.JoinHostPort(host, strconv.Itoa(int(hello.Port)))
	if dialed != "" {
		listenAddress = raw.RemoteAddr().String()
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return newConn(t, raw, stream, reader, hello, shown, listenAddress), nil
}

// credentials is what the certificate of a peer grants.
type credentials struct {
	// members holds the peer's member name in each group. Without TLS it is nil, and every name is allowed.
	members map[string]string
	// witness is the name of a witness. Its certificate names no groups, so members is nil: the lists decide, by its UID.
	witness  string
	notAfter time.Time
	// uid is the UID of the peer's pod. It is empty if it isn't known.
	uid string
}

// startTLS runs the TLS handshake. Without certificates it returns the raw connection. checkHello compares the name of
// the peer with those in its certificate, so the handshake requires none.
func (t *Transport) startTLS(ctx context.Context, raw net.Conn, secured *tls.Conn,
	dialing bool,
) (net.Conn, credentials, error) {
	if t.Certificates == nil {
		return raw, credentials{}, nil
	}
	switch {
	case secured != nil:
	case dialing:
		secured = tls.Client(raw, t.Certificates.Client())
	default:
		secured = tls.Server(raw, t.Certificates.Server())
	}
	ctx, cancel := context.WithTimeout(ctx, t.HandshakeTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, credentials{}, fmt.Errorf("cannot complete TLS handshake: %w", err)
	}
	state := secured.ConnectionState()
	names, err := identity.PeerNames(state)
	if err != nil {
		return nil, credentials{}, err
	}
	shown := credentials{notAfter: state.PeerCertificates[0].NotAfter, uid: identity.PeerUID(state)}
	if names[0] == control.Witness(names[0].Member) {
		shown.witness = names[0].Member
		return secured, shown, nil
	}
	shown.members = map[string]string{}
	for _, name := range names {
		if name.Domain == t.Domain {
			shown.members[name.Group] = name.Member
		}
	}
	return secured, shown, nil
}

func (t *Transport) exchangeHellos(stream io.Writer, reader *bufio.Reader, dialed string) (*wire.Hello, error) {
	_, port, err := net.SplitHostPort(t.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	own := &wire.Hello{
		Protocol: wire.Protocol, Domain: t.Domain, Name: t.Self, Life: t.Life, Port: uint16(number), Identity: t.Identity,
		Revision: wire.Revision, Dialed: dialed,
	}
	if _, err := stream.Write(wire.Append(nil, wire.Frame{Hello: own})); err != nil {
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
		return nil, errors.New("first frame must be a Hello")
	}
	return frame.Hello, nil
}

// checkHello compares the peer's Hello with its certificate. With plain TCP there
// is no certificate, and the Hello is trusted.
func (t *Transport) checkHello(hello *wire.Hello, shown *credentials, dialed string) error {
	switch {
	case hello.Protocol != wire.Protocol:
		return fmt.Errorf("protocol version of the peer must be %d, got %d", wire.Protocol, hello.Protocol)
	case hello.Domain != t.Domain:
		return fmt.Errorf("domain of the peer must be %q, got %q", t.Domain, hello.Domain)
	case dialed != "" && hello.Name != dialed:
		return fmt.Errorf("name of the peer must be %q, got %q", dialed, hello.Name)
	case dialed == "" && hello.Dialed != "" && hello.Dialed != t.Self:
		// This agent has an address that the other one had. The two may be connected already, and
		// this connection mustn't replace that.
		return fmt.Errorf("the peer dialed %q, and this agent is %q", hello.Dialed, t.Self)
	case hello.Name == t.Self:
		return fmt.Errorf("name of the peer must not be that of this agent, %q", t.Self)
	case hello.Life == 0 || hello.Port == 0:
		return errors.New("the Hello of the peer must have an incarnation and a port")
	}
	switch {
	case shown.witness != "" && hello.Name != shown.witness:
		return fmt.Errorf("name of the peer must be that in its certificate, %q, got %q", shown.witness, hello.Name)
	case shown.members == nil:
		return nil
	case slices.Contains(slices.Collect(maps.Values(shown.members)), hello.Name):
		if t.Authorize == nil {
			return nil
		}
		return t.Authorize(hello.Name, shown.members)
	}
	return fmt.Errorf("certificate of the peer must name %q as a member in domain %q", hello.Name, t.Domain)
}

// limits apply to connections whose handshake isn't complete. The peer at their other end isn't authenticated yet.
//
// The certificate of a member of 100 groups with the longest names has about 40 KiB, a
// usual one less than 1 KiB. Therefore a single connection may read much more than its
// share of the total. When the total is reached, the connection with most bytes is closed.
var limits = connlimit.Limits{Unpinned: 128, UnpinnedPerHost: 32, Bytes: 48 << 10, TotalBytes: 1 << 20}

func (t *Transport) accept() {
	acceptAll(t.ctx, t.accepting, t.Log, func(raw net.Conn) { t.tasks.Go(func() { t.handleIncoming(raw, nil) }) })
}

// handleIncoming runs the handshake of an incoming connection, and passes the connection to its peer.
func (t *Transport) handleIncoming(raw net.Conn, secured *tls.Conn) {
	c, err := t.handshake(t.ctx, raw, secured, "")
	if pending, ok := raw.(*connlimit.Conn); err == nil && ok && !pending.Pin() {
		err = errors.New("the connection was closed because there were too many")
	}
	if err != nil {
		_ = raw.Close() // The handshake's error is the one to report.
		t.Log.Debug("rejected connection", "address", raw.RemoteAddr(), "error", err)
		return
	}
	p := t.peer(c.name)
	if p == nil || p.dials {
		t.Log.Debug("rejected connection", "peer", c.name, "known", p != nil)
		c.close()
		if p != nil {
			p.setAnnounced(c.listenAddress, c.life)
		}
		return
	}
	p.offer(c)
}
