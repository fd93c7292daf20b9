package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// dialResult is what an attempt to reach a peer shows about its process.
type dialResult uint8

const (
	// noAnswer shows nothing.
	noAnswer dialResult = iota
	// unresponsive doesn't either: a process listens, but hasn't completed the handshake in time.
	unresponsive
	// refused means that no process listens at the address in question.
	refused
	// connClosed means that a process listened, and closed the connection before the handshake was complete. For a moment,
	// a process that is being killed looks like that.
	connClosed
)

// While the kernel ends a process, it closes the sockets one after the other, and the listener among the last ones.
// This takes very little time once the first one is closed. So after connClosed the next attempt follows at once, and
// further ones with growing delays.
const (
	closedRetryStep = 50 * time.Microsecond
	closedRetryMax  = 2 * time.Millisecond
	closedRetries   = 50
	// listenCheckTimeout bounds how long to watch whether a new connection is closed at once.
	listenCheckTimeout = 20 * time.Millisecond
	// firstCheckTimeout bounds the first dial after the end of a connection.
	firstCheckTimeout = 20 * time.Millisecond
)

// errUnresponsive is the error of a handshake that took too long.
var errUnresponsive = errors.New("the peer hasn't completed the handshake")

func (t *Transport) connect(ctx context.Context, address, name string) (*conn, error) {
	c, err := t.dialAndHandshake(ctx, address, name)
	if err != nil && ctx.Err() == nil {
		t.Log.Debug("cannot connect to peer", "peer", name, "address", address, "error", err)
		t.reportLookup(name, err)
		if p := t.peer(name); p != nil {
			p.noteFailure(ctx, err)
		}
	}
	return c, err
}

// dialAndHandshake waits for its turn only after it has dialed: an address that refuses connections, or a process that
// closes them, shows that a process has ended.
func (t *Transport) dialAndHandshake(ctx context.Context, address, name string) (*conn, error) {
	raw, err := t.dialTCP(ctx, address)
	if err != nil {
		return nil, err
	}
	endTurn := t.turns.tryTake()
	if endTurn == nil {
		if err := watchClose(raw); !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		if endTurn, err = t.turns.take(ctx); err != nil {
			return nil, err
		}
		// The peer bounds the time from the start of a connection to the end of its handshake, so begin a new one.
		if raw, err = t.dialTCP(ctx, address); err != nil {
			endTurn()
			return nil, err
		}
	}
	defer endTurn()
	interrupt := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c, err := t.handshake(ctx, raw, nil, name)
	if !interrupt() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close() // The handshake's error is the one to report.
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w within %s: %w", errUnresponsive, t.HandshakeTimeout, err)
		}
		return nil, err
	}
	c.listenAddressVerified.Store(true)
	return c, nil
}

// probeListener checks whether a process listens at an address. The error is what resultOf expects.
func (t *Transport) probeListener(ctx context.Context, address string) error {
	raw, err := t.dialTCP(ctx, address)
	if err != nil {
		return err
	}
	if err = watchClose(raw); errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("a process listens at %s, but doesn't connect: %w", address, err)
	}
	return err
}

// watchClose watches for a moment whether the peer closes a new connection, and closes it.
func watchClose(raw net.Conn) error {
	defer raw.Close()
	if err := raw.SetReadDeadline(time.Now().Add(listenCheckTimeout)); err != nil {
		return err
	}
	if _, err := raw.Read(make([]byte, 1)); err != nil {
		return err
	}
	return errors.New("the peer has sent something before the handshake")
}

// resultOf returns what the error of an attempt shows about the process that listened at the address listened.
func resultOf(err error, listened string) dialResult {
	var failed *net.OpError
	switch {
	case errors.Is(err, errUnresponsive):
		return unresponsive
	case errors.Is(err, syscall.ECONNREFUSED):
		// After a connection is established, the kernel may report this, too: an ICMP message arrived.
		if errors.As(err, &failed) && failed.Op == "dial" && failed.Addr != nil && failed.Addr.String() == listened {
			return refused
		}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE):
		return connClosed
	}
	return noAnswer
}

// A handshake takes one to two milliseconds of processor time. If a hundred agents that start at once on two cores
// dialed all others at once, no handshake would be complete when its time is over, and the next attempts wouldn't be
// either. So an agent begins few handshakes at a time.
const (
	handshakesAtOnce = 8
	// turnMax bounds a turn: peers that accept connections but don't answer, such as frozen ones, mustn't keep the others
	// away.
	turnMax = time.Second
)

// turns are those of dials whose handshakes may begin, first come, first served.
type turns chan struct{}

// tryTake returns the function that ends the turn, or nil if none is free.
func (t turns) tryTake() (end func()) {
	select {
	case t <- struct{}{}:
		return t.begin()
	default:
		return nil
	}
}

func (t turns) take(ctx context.Context) (end func(), err error) {
	select {
	case t <- struct{}{}:
		return t.begin(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t turns) begin() (end func()) {
	longest := time.AfterFunc(turnMax, func() { <-t })
	return func() {
		if longest.Stop() {
			<-t
		}
	}
}
