package proxy

import (
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

const loopback = "127.0.0.1"

var limits = Limits{Connections: 1000, GroupConnections: 1000, Waiting: 1000, Pipes: 128, Large: 10}

// coordinator returns one whose application is at an address.
func coordinator(term uint64, address string) Coordinator {
	return Coordinator{Name: "a", Term: term, Address: netip.MustParseAddr(address)}
}

// world is a proxy with a service.
type world struct {
	Service

	t      testing.TB
	shared *Shared
	proxy  *Proxy
	now    atomic.Pointer[Coordinator]
}

func newWorld(t testing.TB, limits Limits, change func(*Service)) *world {
	t.Helper()
	w := &world{t: t, Service: Service{
		Service: config.Service{Ports: []control.ServicePort{freePort(t)}, Wait: time.Hour}, Stats: &Stats{},
	}}
	w.now.Store(&Coordinator{})
	w.Coordinator = func() Coordinator { return *w.now.Load() }
	change(&w.Service)
	var err error
	w.shared, err = NewShared(limits)
	must.Succeed(t, err)
	t.Cleanup(w.shared.Close)
	w.proxy, err = Serve(t.Context(), w.shared, w.Service)
	must.Succeed(t, err)
	t.Cleanup(w.proxy.Close)
	return w
}

func freePort(t testing.TB) control.ServicePort {
	t.Helper()
	listen, err := testnet.FreePort()
	must.Succeed(t, err)
	application, err := testnet.FreePort()
	must.Succeed(t, err)
	return control.ServicePort{Listen: net.JoinHostPort(loopback, strconv.Itoa(listen)), Port: uint16(application)}
}

func unchanged(*Service) {}

func (w *world) set(c Coordinator) {
	w.now.Store(&c)
	w.shared.Update()
}

func dial(t testing.TB, to control.ServicePort) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", to.Listen)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must.Succeed(t, c.SetDeadline(time.Now().Add(testwait.Limit)))
	return c.(*net.TCPConn) //nolint:errcheck,forcetypeassert // Network "tcp" has no other.
}

func (w *world) dial() *net.TCPConn { return dial(w.t, w.Ports[0]) }

// serve runs an application at an address until end. It closes connections that were handled.
func (w *world) serve(address string, handle func(*net.TCPConn)) (end func() error) {
	w.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(int(w.Ports[0].Port))))
	must.Succeed(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go func() {
				defer c.Close()
				handle(c.(*net.TCPConn)) //nolint:errcheck,forcetypeassert // as in dial
			}()
		}
	}()
	return l.Close
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// send sends until the connection ends, and reads nothing.
func send(c *net.TCPConn) {
	var err error
	for chunk := make([]byte, 1<<16); err == nil; {
		_, err = c.Write(chunk)
	}
}

// exchange sends bytes and expects them back.
func exchange(t testing.TB, c *net.TCPConn) {
	t.Helper()
	_, err := c.Write([]byte("hello"))
	must.Succeed(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(c, got)
	must.Succeed(t, err)
	must.Equalf(t, string(got), "hello", "echo")
}

func expectReset(t testing.TB, c net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, c)
	expect.ErrorIsf(t, err, syscall.ECONNRESET, "connection")
}

// expectRefusal expects that a new connection is reset, perhaps so early that dialing fails.
func expectRefusal(t testing.TB, to control.ServicePort) {
	t.Helper()
	if c, err := net.Dial("tcp", to.Listen); err == nil {
		defer c.Close()
		expectReset(t, c)
	} else {
		expect.ErrorIsf(t, err, syscall.ECONNRESET, "connection")
	}
}

func (w *world) awaitEnded(why Reason, n int64) {
	w.t.Helper()
	testwait.Until(w.t, why.String(), func() bool { return int64(w.Stats.Ended[why].Load()) == n })
}

func (w *world) awaitWaiting(n int64) {
	w.t.Helper()
	testwait.Until(w.t, "connections wait", func() bool { return w.Stats.Waiting.Load() == n })
}
