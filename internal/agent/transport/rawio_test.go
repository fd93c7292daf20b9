package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// acceptedPair returns both ends of a connection. The accepted one is of the package.
func acceptedPair(t *testing.T) (accepted net.Conn, other *net.TCPConn) {
	t.Helper()
	listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	dialed, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	must.Succeed(t, err)
	if accepted, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		accepted.Close()
		dialed.Close()
	})
	if _, usual := accepted.(*net.TCPConn); usual {
		t.Error("got a *net.TCPConn, want a connection of the package")
	}
	return accepted, dialed.(*net.TCPConn) //nolint:errcheck,forcetypeassert // It is one.
}

// TestConnectionCarriesMoreThanTheKernelBuffers: the write has to wait for the reader, and the reader for the write.
func TestConnectionCarriesMoreThanTheKernelBuffers(t *testing.T) {
	accepted, other := acceptedPair(t)
	carries(t, accepted, other)
	accepted, other = acceptedPair(t)
	carries(t, other, accepted)
}

func carries(t *testing.T, from, to net.Conn) {
	t.Helper()
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	wrote := make(chan error, 1)
	go func() {
		_, err := from.Write(want)
		wrote <- errors.Join(err, from.Close())
	}()
	if got, err := io.ReadAll(to); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes and error %v, want the %d bytes that were written", len(got), err, len(want))
	}
	expect.Succeed(t, <-wrote)
}

func TestConnectionReportsErrorsLikeOthers(t *testing.T) {
	accepted, other := acceptedPair(t)
	must.Succeed(t, accepted.SetReadDeadline(time.Unix(1, 0)))
	var timeout net.Error
	if _, err := accepted.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) ||
		!errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("after the deadline: got error %v, want a timeout", err)
	}
	must.Succeed(t, accepted.SetReadDeadline(time.Time{}))
	must.Succeed(t, other.SetLinger(0))
	other.Close()
	if _, err := accepted.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after a reset: got error %v from Read, want %v", err, syscall.ECONNRESET)
	}
	if _, err := accepted.Write([]byte{1}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after a reset: got error %v from Write, want %v", err, syscall.EPIPE)
	}
	accepted.Close()
	if _, err := accepted.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: got error %v, want %v", err, net.ErrClosed)
	}
}

func TestCloseEndsRead(t *testing.T) {
	accepted, _ := acceptedPair(t)
	ended := make(chan error, 1)
	go func() {
		_, err := accepted.Read(make([]byte, 1))
		ended <- err
	}()
	accepted.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case err := <-ended:
		expect.ErrorIsf(t, err, net.ErrClosed, "error")
	case <-ctx.Done():
		t.Error("Read didn't end")
	}
}
