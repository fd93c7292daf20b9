package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process names one process for good. A number alone doesn't: once the process has ended, the next may get it, and after
// a restart of the computer the start time may be the same as well.
type Process struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"startTicks"`
	BootID     string `json:"bootID"`
}

// Identify names the process that has this number now.
func Identify(pid int) (Process, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Process{}, fmt.Errorf("read which boot this is: %w", err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	ticks, err := parseStartTicks(string(stat))
	if err != nil {
		return Process{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return Process{PID: pid, StartTicks: ticks, BootID: strings.TrimSpace(string(boot))}, nil
}

// parseStartTicks reads the 22nd field of a stat file.
func parseStartTicks(stat string) (uint64, error) {
	rest, found := afterName(stat)
	fields := strings.Fields(rest)
	const startTicks = 22 - 3 // The fields after the name begin with the third.
	if !found || len(fields) <= startTicks {
		return 0, fmt.Errorf("its stat file has no start time: %q", stat)
	}
	return strconv.ParseUint(fields[startTicks], 10, 64)
}

// afterName returns what follows the program's name in a stat file. The name is in parentheses, and may contain anything.
func afterName(stat string) (rest string, found bool) {
	at := strings.LastIndex(stat, ")")
	return stat[at+1:], at >= 0
}

// Alive tells whether it is still this process that has the number.
func (p Process) Alive() bool {
	if p.PID == 0 {
		return false
	}
	now, err := Identify(p.PID)
	return err == nil && now == p && !zombie(p.PID)
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	rest, _ := afterName(string(stat))
	return strings.HasPrefix(strings.TrimSpace(rest), "Z")
}

// Kill ends the process, and for an init all that runs in its machine, and returns when nothing is left of it. A process
// that has ended already is no error; one that merely has the same number is left alone.
func (p Process) Kill() error {
	if p.PID == 0 {
		return nil
	}
	descriptor, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}
	defer unix.Close(descriptor)
	// The descriptor holds on to one process; only now is it safe to look whether it's the right one.
	if !p.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(descriptor, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	return awaitEnd(descriptor, p.PID)
}

func awaitEnd(descriptor, pid int) error {
	const patience = 30 * time.Second
	deadline := time.Now().Add(patience)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("process %d was killed, but hasn't ended after %s: something in the kernel holds it", pid, patience)
		}
		poll := []unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the end of process %d: %w", pid, err)
		}
		if n > 0 {
			return nil
		}
	}
}
