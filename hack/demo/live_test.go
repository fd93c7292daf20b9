package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// terminal is a pseudo terminal.
type terminal struct {
	user   *os.File // The side of the user: the screen and the keyboard.
	demo   *os.File // The side of the demo.
	screen *testwait.Log
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	control(t, user, func(fd int) error {
		if number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	})
	demo, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	opened := &terminal{user: user, demo: demo, screen: &testwait.Log{}}
	opened.resize(t, 100, 24)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 4096)
		for {
			n, err := user.Read(buffer)
			if err != nil {
				return
			}
			_, _ = opened.screen.Write(buffer[:n]) // It never fails.
		}
	}()
	t.Cleanup(func() {
		user.Close() // First: this ends the demo's read of the keyboard, so that its side can be closed.
		demo.Close()
		<-ended
	})
	return opened
}

// control calls a function with the descriptor of a file. Unlike with Fd, Close still ends a pending Read.
func control(t *testing.T, file *os.File, do func(fd int) error) {
	t.Helper()
	raw, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := errors.Join(raw.Control(func(fd uintptr) { failed = do(int(fd)) }), failed); err != nil {
		t.Fatal(err)
	}
}

func (p *terminal) resize(t *testing.T, columns, rows uint16) {
	t.Helper()
	control(t, p.user, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

func (p *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := p.user.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// await waits until the screen shows a text. What was shown before doesn't count.
func (p *terminal) await(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	err := agentcluster.Await(ctx, func(context.Context) error {
		shown := p.screen.String()
		if last := strings.LastIndex(shown, "\x1b[H"); last < 0 || !strings.Contains(shown[last:], text) {
			return errors.New("the screen must show " + text)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%q", err, p.screen.String())
	}
}

// runOnTerminal runs the live view of a group with two nodes. p-3 leads, and p-2 is its successor.
func runOnTerminal(t *testing.T) (context.Context, *terminal, *fakeCluster, *testwait.Log, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	shown := openTerminal(t)
	fake := &fakeCluster{afterFault: statusWithLeader("p-1", 8), afterHeal: statusWithLeader("p-3", 9)}
	printed := &testwait.Log{} // What the demo prints besides the view.
	fake.demo = &demo{out: newPrinter(printed), cluster: fake, now: statusWithLeader("p-3", 7), changed: make(chan struct{})}
	if err := fake.demo.updateNodes(ctx); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- fake.demo.runLive(ctx, shown.demo, shown.demo) }()
	t.Cleanup(cancel)
	return ctx, shown, fake, printed, result
}

// The terminal's mode is restored however the live view ends.
func TestLiveViewRestoresTerminal(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *terminal, *fakeCluster){
		"q":       func(t *testing.T, p *terminal, _ *fakeCluster) { t.Helper(); p.press(t, "q") },
		"Ctrl-C":  func(t *testing.T, p *terminal, _ *fakeCluster) { t.Helper(); p.press(t, "\x03") },
		"failure": func(_ *testing.T, _ *terminal, fake *fakeCluster) { fake.endWatch() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, shown, fake, _, ended := runOnTerminal(t)
			shown.await(ctx, t, "coordinator p-3 in term 7")
			if raw := echoes(t, shown); raw {
				t.Error("the terminal must not echo keys while the view is shown")
			}
			end(t, shown, fake)
			if err := <-ended; (err != nil) != (name == "failure") {
				t.Errorf("got error %v", err)
			}
			if !echoes(t, shown) {
				t.Error("the terminal must echo keys again")
			}
			if !strings.HasSuffix(shown.awaitEnd(ctx, t), "\x1b[?25h\x1b[?1049l") {
				t.Errorf("the view must show the cursor and leave the alternate screen: %q", shown.screen)
			}
		})
	}
}

func echoes(t *testing.T, p *terminal) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(p.demo.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// awaitEnd waits until the alternate screen has been left, and returns everything that was shown.
func (p *terminal) awaitEnd(ctx context.Context, t *testing.T) string {
	t.Helper()
	if err := agentcluster.Await(ctx, func(context.Context) error {
		if !strings.Contains(p.screen.String(), "1049l") {
			return errors.New("the view is still shown")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p.screen.String()
}

func TestKeysTakeCoordinatorAway(t *testing.T) {
	ctx, shown, fake, printed, ended := runOnTerminal(t)
	shown.await(ctx, t, "none yet: press a, p or n")
	shown.await(ctx, t, "p-3 runs on n-2")
	shown.press(t, "xn") // x isn't a key.
	shown.await(ctx, t, "Last fault   isolated n-2")
	shown.await(ctx, t, "Failover     p-1 leads after")
	shown.await(ctx, t, "restore n-2")
	shown.press(t, "n")
	shown.await(ctx, t, "restored n-2")
	shown.await(ctx, t, "coordinator p-3 in term 9")
	fake.afterFault = statusWithLeader("p-2", 10)
	shown.press(t, "a")
	shown.await(ctx, t, "Failover     p-2 leads after")
	shown.await(ctx, t, "Locks        30 granted, none held twice")
	shown.press(t, "q")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, want := range []string{"isolated n-2: p-1 leads after", "killed the agent of p-3: p-2 leads after", "locks: 30 granted, none held twice"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("after the view, the demo must print %q, got\n%s", want, printed)
		}
	}
}

// A lock that was held twice fails the demo.
func TestViolationFailsLiveView(t *testing.T) {
	ctx, shown, fake, _, ended := runOnTerminal(t)
	fake.violation = "duplicate"
	shown.await(ctx, t, "none yet")
	shown.press(t, "a")
	shown.await(ctx, t, "THE INVARIANT IS VIOLATED: duplicate")
	shown.press(t, "q")
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "THE INVARIANT IS VIOLATED") {
		t.Errorf("got error %v", err)
	}
}

// Quitting restores a node that is isolated.
func TestQuitHealsNode(t *testing.T) {
	ctx, shown, fake, _, ended := runOnTerminal(t)
	shown.await(ctx, t, "none yet")
	shown.press(t, "n")
	shown.await(ctx, t, "Failover     p-1 leads")
	shown.press(t, "q")
	if err := <-ended; err != nil || fake.healed != "n-2" {
		t.Errorf("healed %q, error %v", fake.healed, err)
	}
}

// On a terminal, the printer keeps the activity below the lines, within the width of the terminal.
func TestPrinterKeepsActivityBelowLines(t *testing.T) {
	var out bytes.Buffer
	p := &printer{out: &out, columns: func() int { return 20 }}
	p.show("building: 10 % done")
	fmt.Fprintln(p, "a line")
	p.show("")
	want := "[0s] building: 10 …\r\x1b[Ka line\n[0s] building: 10 …\r\x1b[K"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
