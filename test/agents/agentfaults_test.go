package agents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// smallDisk mounts a file system of three pages, on which an agent can replace the file of one group, and returns
// functions that fill and enlarge it. It requires root. Without root, the test is skipped, except in CI.
func smallDisk(t *testing.T) (folder string, fill func() error, enlarge func()) {
	t.Helper()
	folder = t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size="+fmt.Sprint(3*os.Getpagesize())); err != nil {
		need.Skip(t, fmt.Sprintf("root: it mounts a file system: %v", err))
	}
	t.Cleanup(func() {
		expect.Succeed(t, unix.Unmount(folder, unix.MNT_DETACH))
	})
	fill = func() error { return os.WriteFile(filepath.Join(folder, "other"), []byte("x"), 0o600) }
	return folder, fill, func() {
		must.Succeed(t, unix.Mount("tmpfs", folder, "tmpfs", unix.MS_REMOUNT, "size=1m"))
	}
}

// TestMemberListIsAdoptedWhenItCanBeStored: an agent whose disk is full adopts a member list as soon as there is space,
// without another change to its configuration. It can be restarted meanwhile.
func TestMemberListIsAdoptedWhenItCanBeStored(t *testing.T) {
	t.Parallel()
	folder, fill, enlarge := smallDisk(t)
	agents := newSteadyGroup(t)
	agents.check(agents.WriteConfig("a", func(f *agentcluster.File) { f.State = folder }))
	agents.start()
	agents.awaitCoordinator()
	testwait.NoError(t, fill) // The agent may be writing.
	for _, name := range agents.Names() {
		agents.check(agents.WriteConfig(name, func(f *agentcluster.File) {
			f.Groups[0].Version = 2
			f.Groups[0].Members[0].Priority++
		}))
	}
	agents.awaitReadiness("a", syscall.ENOSPC.Error())
	for _, name := range []string{"b", "c"} {
		agents.awaitVersion(name, 2)
	}
	expect.Equalf(t, agents.status("a").Version, 1, "version of a")
	agents.awaitCoordinator()
	// It starts again with the list and the lease that it has stored.
	agents.check(agents.WriteConfig("a", func(f *agentcluster.File) {
		f.Groups[0].Safety = agentcluster.Safety{Mode: "Majority", LeaseMillis: 8000}
	}))
	agents.check(agents.Restart("a"))
	agents.awaitVersion("a", 1)
	agents.awaitReadiness("a", syscall.ENOSPC.Error())
	agents.awaitCoordinator()
	enlarge()
	agents.awaitVersion("a", 2)
	agents.awaitReadiness("a", "ok")
	// The agent has stored the list.
	agents.check(agents.Restart("a"))
	agents.awaitVersion("a", 2)
	agents.awaitCoordinator()
}

func (g *testGroup) awaitVersion(name string, version uint32) {
	g.t.Helper()
	g.await(func(ctx context.Context) error {
		status, err := g.Status(ctx, name)
		if err == nil && status.Version != version {
			err = fmt.Errorf("got version %d of %s, want %d", status.Version, name, version)
		}
		return err
	})
}

// awaitReadiness waits until the reasons why an agent isn't ready, or "ok", have a text.
func (g *testGroup) awaitReadiness(name, text string) {
	g.t.Helper()
	g.await(func(ctx context.Context) error {
		ready, reasons, err := g.Ready(ctx, name)
		if err == nil && (!strings.Contains(reasons, text) || ready != (text == "ok")) {
			err = fmt.Errorf("%s: got ready %t with reasons %q, want %q", name, ready, reasons, text)
		}
		return err
	})
}

// stallStderr connects the agent's stderr to a pipe, which nobody reads. fill fills it.
func stallStderr(t *testing.T, agent *agentcluster.Agent) (from *os.File, fill func()) {
	t.Helper()
	from, to, err := os.Pipe()
	must.Succeed(t, err)
	t.Cleanup(func() { from.Close(); to.Close() })
	agent.Stderr = to
	return from, func() {
		// Another open file of the same pipe: the agent's must remain a blocking one.
		path := fmt.Sprintf("/proc/self/fd/%d", to.Fd())
		full, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		must.Succeed(t, err)
		defer unix.Close(full)
		for err == nil {
			_, err = unix.Write(full, []byte("x"))
		}
		if !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
	}
}

// TestStalledStderrDoesNotDelayTheEnd ends an agent whose stderr is full: by a request, and
// by a signal for which the Go runtime prints a stack, as for a panic.
func TestStalledStderrDoesNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGQUIT} {
		t.Run(unix.SignalName(signal), func(t *testing.T) {
			agents := newSteadyGroup(t)
			agent := agents.Agent("c")
			_, fill := stallStderr(t, agent)
			agents.start()
			agents.awaitCoordinator()
			fill()
			agents.check(agent.End(signal))
			agents.check(agent.AwaitEnd())
		})
	}
}

// TestStackIsPrinted: a crash of the agent leaves its stack on stderr.
func TestStackIsPrinted(t *testing.T) {
	t.Parallel()
	agents := newSteadyGroup(t)
	from, _ := stallStderr(t, agents.Agent("c"))
	agents.start()
	agents.awaitCoordinator()
	agents.check(agents.Agent("c").End(unix.SIGQUIT))
	read := make(chan error, 1)
	go func() { read <- readUntil(from, "goroutine ") }()
	expect.Succeed(t, testwait.Receive(t, "the stack", read))
}

// readUntil reads from a pipe until a text arrives.
func readUntil(from *os.File, text string) error {
	var all strings.Builder
	buffer := make([]byte, 64<<10)
	for !strings.Contains(all.String(), text) {
		n, err := from.Read(buffer)
		if err != nil {
			return fmt.Errorf("%w after %.1000q", err, all.String())
		}
		all.Write(buffer[:n])
	}
	return nil
}
