package machine

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestParseStartTicksAcceptsAnyName(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21"
	for _, name := range []string{"etcd", "a b", "a) R 1 (b", ")"} {
		if ticks, err := parseStartTicks("17 (" + name + ")" + rest); ticks != 4711 || err != nil {
			t.Errorf("%q: got %d, error %v", name, ticks, err)
		}
	}
	for _, stat := range []string{"", "17 (etcd) S 1", "17 etcd" + rest} {
		if ticks, err := parseStartTicks(stat); err == nil {
			t.Errorf("%q: got %d, want an error", stat, ticks)
		}
	}
}

// The ID of a process that has exited may be that of another process now.
func TestKillDoesNotKillOtherProcessWithSameID(t *testing.T) {
	command := exec.Command("sleep", "60")
	must.Succeed(t, command.Start())
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // Kill below makes Wait return an error.
		close(ended)
	}()
	process, err := Identify(command.Process.Pid)
	must.Succeed(t, err)
	for name, other := range map[string]Process{
		"started earlier":  {PID: process.PID, StartTicks: process.StartTicks - 1, BootID: process.BootID},
		"before a restart": {PID: process.PID, StartTicks: process.StartTicks, BootID: "another"},
		"no process":       {},
		"exited":           {PID: 1 << 22, StartTicks: 1, BootID: process.BootID},
	} {
		if other.Alive() {
			t.Errorf("%s: got %v alive, want not alive", name, other)
		}
		if err := other.Kill(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !process.Alive() {
		t.Fatal("Kill of another process killed the process")
	}
	must.Succeed(t, process.Kill())
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("the process is still running after Kill")
	}
	if process.Alive() {
		t.Error("the process is alive after Kill")
	}
}

func TestThisProcessIsAlive(t *testing.T) {
	process, err := Identify(os.Getpid())
	if err != nil || !process.Alive() {
		t.Errorf("got %v and error %v, want this process alive", process, err)
	}
}
