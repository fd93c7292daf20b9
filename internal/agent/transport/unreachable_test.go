package transport_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// droppingListener is a listener that can be made unreachable: a packet filter drops what arrives for it and for its
// connections. The kernel then answers no packet, neither with an acknowledgment nor with a reset.
type droppingListener struct {
	tcpListener

	t        *testing.T
	mu       sync.Mutex
	accepted []*net.TCPConn
}

// tcpListener is what Listen returns.
type tcpListener interface {
	net.Listener
	syscall.Conn
	AcceptTCP() (*net.TCPConn, error)
}

func (l *droppingListener) Accept() (net.Conn, error) {
	conn, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted = append(l.accepted, conn)
	return conn, nil
}

// drop drops all packets that arrive from now on.
func (l *droppingListener) drop() { l.each(dropAll) }

func dropAll(fd int) error {
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &nothing[0]})
}

// needPacketFilter skips a test where this user may not attach a packet filter to a socket.
func needPacketFilter(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Succeed(t, err)
	defer unix.Close(fd)
	if err := dropAll(fd); err != nil {
		need.Skip(t, fmt.Sprintf("CAP_BPF or root: it attaches a packet filter to a socket: %v", err))
	}
}

func (l *droppingListener) heal() {
	l.each(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
}

func (l *droppingListener) each(do func(fd int) error) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range append([]syscall.Conn{l.tcpListener}, conns(l.accepted)...) {
		control, err := end.SyscallConn()
		if err != nil {
			continue // It is closed.
		}
		var failed error
		if err := control.Control(func(fd uintptr) { failed = do(int(fd)) }); err == nil && failed != nil {
			l.t.Error(failed)
		}
	}
}

func conns(from []*net.TCPConn) (to []syscall.Conn) {
	for _, conn := range from {
		to = append(to, conn)
	}
	return to
}

// TestUnreachablePeerIsDisconnectedAndReconnected: by both sides, also when neither
// sends. A missing answer doesn't prove that the process has ended.
func TestUnreachablePeerIsDisconnectedAndReconnected(t *testing.T) {
	needPacketFilter(t)
	for what, sends := range map[string]bool{"while they send": true, "while they are idle": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			var listener *droppingListener
			a := h.start("a", "127.0.0.1:0", 1)
			b := h.start("b", "127.0.0.1:0", 2, func(c *transport.Config) {
				inner := c.Listener.(tcpListener) //nolint:errcheck,forcetypeassert // It is one.
				listener = &droppingListener{tcpListener: inner, t: t}
				c.Listener = listener
			})
			a.SetPeers(map[string]string{"b": b.address})
			b.SetPeers(map[string]string{"a": a.address})
			a.waitVerified("b")
			b.waitVerified("a")
			listener.drop()
			testwait.Until(t, "both sides close the connection", func() bool {
				if sends {
					a.Send("b", transport.Outgoing{Frame: messageFrame(1)})
					b.Send("a", transport.Outgoing{Frame: messageFrame(1)})
				}
				return a.log.Count("connection closed") > 0 && b.log.Count("connection closed") > 0
			})
			testwait.Until(t, "a fails to connect", func() bool { return a.log.Count("cannot connect to peer") > 0 })
			listener.heal()
			a.sendUntilReceived(b, 2)
			b.sendUntilReceived(a, 2)
			a.wantNoneEnded()
			b.wantNoneEnded()
		})
	}
}

// TestRejectionProvesNoEnd: a firewall refuses a connection by ICMP in the place of a process that listens. The test
// runs again in a network namespace, because packets of other tests must not be rejected.
func TestRejectionProvesNoEnd(t *testing.T) {
	const inner = "CONCLAVE_TEST_REJECTION"
	if os.Getenv(inner) != "" {
		testRejection(t)
		return
	}
	t.Parallel()
	runtime.LockOSThread() // The kernel kills the process when this thread ends.
	defer runtime.UnlockOSThread()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestRejectionProvesNoEnd$", "-test.v")
	command.Env = append(os.Environ(), inner+"=1")
	agentcluster.InOwnNetwork(command)
	output, err := command.CombinedOutput()
	var exited *exec.ExitError
	switch {
	case errors.As(err, &exited):
		t.Errorf("%s\n%s", err, output)
	case err != nil || bytes.Contains(output, []byte("--- SKIP")):
		need.Skip(t,
			fmt.Sprintf("a network namespace: root or user namespaces, and nft (see hack/packages): %v %s", err, output))
	}
}

func testRejection(t *testing.T) {
	if err := agentcluster.SetUpNetwork(t.Context()); err != nil {
		t.Skip(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = listener.Close() }()
	rules := exec.CommandContext(t.Context(), "nft", "-f", "-")
	rules.Stdin = strings.NewReader(
		"table ip rejection {\nchain input {\ntype filter hook input priority 0; tcp flags & " +
			"(syn | ack) == syn reject;\n}\n}\n")
	if output, err := rules.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%s", err, output)
	}
	// The kernel considers an ICMP message while it sends a packet only after a second, with the next packet.
	expect.Equalf(t, transport.Refuses(listener, listener.Addr().String(), testwait.Limit), false,
		"a refusal, which would prove the end of the process")
}
