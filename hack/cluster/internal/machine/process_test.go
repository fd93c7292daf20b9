package machine

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestParseStartTicks(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21"
	for _, name := range []string{"etcd", "a b", "a) R 1 (b", ")"} {
		if ticks, err := parseStartTicks("17 (" + name + ")" + rest); ticks != 4711 || err != nil {
			t.Errorf("%q: %d, %v", name, ticks, err)
		}
	}
	for _, stat := range []string{"", "17 (etcd) S 1", "17 etcd" + rest} {
		if ticks, err := parseStartTicks(stat); err == nil {
			t.Errorf("%q gave %d", stat, ticks)
		}
	}
}

// TestKillLeavesOthersAlone: the number of a process that has ended may be another's by now.
func TestKillLeavesOthersAlone(t *testing.T) {
	command := exec.Command("sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // It is killed, and that is no mistake here.
		close(ended)
	}()
	process, err := Identify(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]Process{
		"started earlier":     {PID: process.PID, StartTicks: process.StartTicks - 1, BootID: process.BootID},
		"before a restart":    {PID: process.PID, StartTicks: process.StartTicks, BootID: "another"},
		"no process":          {},
		"one long since gone": {PID: 1 << 22, StartTicks: 1, BootID: process.BootID},
	} {
		if other.Alive() {
			t.Errorf("%s: %v is taken to be alive", name, other)
		}
		if err := other.Kill(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !process.Alive() {
		t.Fatal("the process was killed in another's place")
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the process still runs")
	}
	if process.Alive() {
		t.Error("the process is taken to be alive")
	}
}

func TestIdentifySelf(t *testing.T) {
	process, err := Identify(os.Getpid())
	if err != nil || !process.Alive() {
		t.Errorf("this process: %v, %v", process, err)
	}
}
