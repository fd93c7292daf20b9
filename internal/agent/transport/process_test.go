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
)

// TestMain is a member in a process of its own, if it was started as one.
func TestMain(m *testing.M) {
	if os.Getenv("MESH_SELF") == "" {
		os.Exit(m.Run())
	}
	if err := live(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// deaf is told everything, and does nothing.
type deaf struct{}

func (deaf) ReceiveMessage(string, *wire.Message) {}
func (deaf) PeerEnded(string, uint32)             {}

// live says where it listens, is told of one peer, and lives until it is killed
// or left alone.
func live(ctx context.Context, in io.Reader, out io.Writer) error {
	listener, err := transport.Listen(ctx, os.Getenv("MESH_LISTEN"))
	if err != nil {
		return err
	}
	files, err := identity.Open(identity.Paths{
		Cert: os.Getenv("MESH_CERT"), Key: os.Getenv("MESH_KEY"), CA: os.Getenv("MESH_CA"),
	}, nil)
	if err != nil {
		return err
	}
	var life uint32
	if _, err := fmt.Sscan(os.Getenv("MESH_LIFE"), &life); err != nil {
		return err
	}
	m := transport.New(transport.Config{
		Self: os.Getenv("MESH_SELF"), Domain: "default", Life: life, Listener: listener, Events: deaf{},
		Security: transport.Certificates{Files: files, Domain: "default"}, Log: slog.New(slog.DiscardHandler),
	})
	fmt.Fprintln(out, listener.Addr())
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		peer, address, _ := strings.Cut(lines.Text(), " ")
		m.SetPeers(map[string]string{peer: address})
	}
	return lines.Err()
}

// process is a member in a process of its own.
type process struct {
	*exec.Cmd

	t       *testing.T
	address string
	in      io.Writer
}

// spawn starts one, at an address.
func (w *town) spawn(self, address string, life uint32) *process {
	w.t.Helper()
	paths := w.paths(name(self))
	cmd := exec.CommandContext(w.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "MESH_SELF="+self, "MESH_LISTEN="+address, fmt.Sprint("MESH_LIFE=", life),
		"MESH_CERT="+paths.Cert, "MESH_KEY="+paths.Key, "MESH_CA="+paths.CA)
	cmd.Stderr = os.Stderr
	return w.start(cmd)
}

func (w *town) start(cmd *exec.Cmd) *process {
	w.t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	p := &process{Cmd: cmd, t: w.t, in: in}
	w.t.Cleanup(p.kill)
	if _, err := fmt.Fscanln(out, &p.address); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// knows tells the process of a peer.
func (p *process) knows(peer *member) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, peer.Self, peer.address); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process as the kernel does when memory is short.
func (p *process) kill() {
	_ = p.Process.Kill() // It has ended already.
	_ = p.Wait()         // It was killed.
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}
