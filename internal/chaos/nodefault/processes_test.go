//go:build linux

package nodefault

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The ID of a process that has ended may be that of another process.
func TestProcessOfOtherContainersGetsNoSignal(t *testing.T) {
	other := exec.Command("cat") // It runs until its standard input is closed.
	in, err := other.StdinPipe()
	must.Succeed(t, err)
	must.Succeed(t, other.Start())
	if err := signalProcess(other.Process.Pid, []string{strings.Repeat("0f", 32)}, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	in.Close()
	if err := other.Wait(); err != nil {
		t.Errorf("got %v, want a process that ends by itself", err)
	}
}

func TestProcessOfAContainerGetsTheSignal(t *testing.T) {
	text := must.ReadFile(t, "/proc/self/cgroup")
	own := exec.Command("cat")
	if _, err := own.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, own.Start())
	if err := signalProcess(own.Process.Pid, []string{strings.TrimSpace(string(text))}, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := own.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("got %v, want a process that was killed", err)
	}
	if err := signalProcess(own.Process.Pid, nil, unix.SIGKILL); err != nil {
		t.Errorf("after its end: got %v, want no error", err)
	}
}

// Processes that continue start others, for ever.
func TestContinuedProcessesMayStartOthers(t *testing.T) {
	next := 0
	find := func() ([]int, error) { next++; return []int{next}, nil }
	sent := 0
	if count, err := signalFound(find, func(int) error { sent++; return nil }); count != 1 || sent != 1 || err != nil {
		t.Errorf("got %d processes and %d signals, %v, want 1", count, sent, err)
	}
	// Killed processes start others only until they receive the signal.
	find = func() ([]int, error) { next++; return []int{1, 2, min(next, 5)}, nil }
	if count, err := signalAll(find, func(int) error { return nil }); count != 5 || err != nil {
		t.Errorf("got %d processes, %v, want 5", count, err)
	}
}
