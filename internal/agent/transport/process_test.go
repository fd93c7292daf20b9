package transport_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestMain runs the tests, or a member if the process was started as one.
func TestMain(m *testing.M) {
	if os.Getenv("TRANSPORT_SELF") == "" {
		os.Exit(testwait.Main(m, 8))
	}
	if err := runMember(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// discardEvents ignores all events.
type discardEvents struct{}

func (discardEvents) ReceiveMessage(transport.Sender, *wire.Message) {}
func (discardEvents) PeerEnded(string, uint32)                       {}
func (discardEvents) PeerRefused(string)                             {}

// runMember prints the address on which the member listens, and reads the addresses
// of its peers, until it is killed or its input ends.
func runMember(ctx context.Context, in io.Reader, out io.Writer) error {
	listener, err := transport.Listen(ctx, os.Getenv("TRANSPORT_LISTEN"))
	if err != nil {
		return err
	}
	files, err := identity.Open(identity.Paths{
		Cert: os.Getenv("TRANSPORT_CERT"), Key: os.Getenv("TRANSPORT_KEY"), CA: os.Getenv("TRANSPORT_CA"),
	}, nil)
	if err != nil {
		return err
	}
	var life uint32
	if _, err := fmt.Sscan(os.Getenv("TRANSPORT_LIFE"), &life); err != nil {
		return err
	}
	m := transport.New(transport.Config{
		Self: os.Getenv("TRANSPORT_SELF"), Domain: "default", Life: life, Listener: listener, Events: discardEvents{},
		Certificates: files, Log: slog.New(slog.DiscardHandler),
	})
	fmt.Fprintln(out, listener.Addr())
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		peer, address, _ := strings.Cut(lines.Text(), " ")
		m.SetPeers(map[string]string{peer: address})
	}
	return lines.Err()
}

// process is a member that runs in a process of its own.
type process struct {
	*exec.Cmd

	t       *testing.T
	address string
	in      io.Writer
}

// spawn starts a member in a process of its own, listening on an address.
func (h *harness) spawn(self, address string, life uint32) *process {
	h.t.Helper()
	paths := h.paths(name(self))
	cmd := exec.CommandContext(h.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "TRANSPORT_SELF="+self, "TRANSPORT_LISTEN="+address, fmt.Sprint("TRANSPORT_LIFE=",
		life),
		"TRANSPORT_CERT="+paths.Cert, "TRANSPORT_KEY="+paths.Key, "TRANSPORT_CA="+paths.CA)
	cmd.Stderr = os.Stderr
	return h.startCommand(cmd)
}

func (h *harness) startCommand(cmd *exec.Cmd) *process {
	h.t.Helper()
	in, err := cmd.StdinPipe()
	must.Succeed(h.t, err)
	out, err := cmd.StdoutPipe()
	must.Succeed(h.t, err)
	must.Succeed(h.t, cmd.Start())
	p := &process{Cmd: cmd, t: h.t, in: in}
	h.t.Cleanup(p.kill)
	_, err = fmt.Fscanln(out, &p.address)
	must.Succeed(h.t, err)
	return p
}

// addPeer sends the address of a peer to the process.
func (p *process) addPeer(peer *member) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.in, peer.Self, peer.address)
	must.Succeed(p.t, err)
}

// kill ends the process with SIGKILL, as the kernel does when memory is short.
func (p *process) kill() {
	_ = p.Process.Kill() // An error means that it has ended already.
	_ = p.Wait()         // The error is the signal.
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	must.Succeed(p.t, p.Process.Signal(s))
}
