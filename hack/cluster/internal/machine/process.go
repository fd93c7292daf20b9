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

// Process uniquely identifies a process. A process ID alone doesn't: after the process has exited, another one may get the
// ID, and after a reboot the start time may be the same too.
type Process struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"startTicks"`
	BootID     string `json:"bootID"`
}

// BootID returns an identifier that the computer has until it is switched off.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// Identify returns the process that has this ID now.
func Identify(pid int) (Process, error) {
	boot, err := BootID()
	if err != nil {
		return Process{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, fmt.Errorf("cannot inspect process %d: %w", pid, err)
	}
	ticks, err := parseStartTicks(string(stat))
	if err != nil {
		return Process{}, fmt.Errorf("cannot inspect process %d: %w", pid, err)
	}
	return Process{PID: pid, StartTicks: ticks, BootID: boot}, nil
}

// parseStartTicks returns the 22nd field of a stat file.
func parseStartTicks(stat string) (uint64, error) {
	rest, found := afterName(stat)
	fields := strings.Fields(rest)
	const startTicks = 22 - 3 // The first field after the name is the third.
	if !found || len(fields) <= startTicks {
		return 0, fmt.Errorf("the stat file must contain a start time, got %q", stat)
	}
	return strconv.ParseUint(fields[startTicks], 10, 64)
}

// afterName returns the rest of a stat file after the program's name. The name is in parentheses and may contain any
// character.
func afterName(stat string) (rest string, found bool) {
	at := strings.LastIndex(stat, ")")
	return stat[at+1:], at >= 0
}

// Alive reports whether the process is running.
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

// Kill kills the process and returns when it has exited. When an init exits, all processes of its machine have exited. Kill
// returns nil if the process has already exited. It never kills another process that has the same ID.
func (p Process) Kill() error {
	if p.PID == 0 {
		return nil
	}
	descriptor, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot open process %d: %w", p.PID, err)
	}
	defer unix.Close(descriptor)
	// The descriptor refers to one process, whatever happens to its ID. Therefore check the identity after PidfdOpen.
	if !p.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(descriptor, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot kill process %d: %w", p.PID, err)
	}
	return awaitEnd(descriptor, p.PID)
}

func awaitEnd(descriptor, pid int) error {
	const waitMax = 30 * time.Second
	deadline := time.Now().Add(waitMax)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("process %d didn't exit within %s after SIGKILL: it may be blocked in the kernel", pid, waitMax)
		}
		poll := []unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("cannot wait for the exit of process %d: %w", pid, err)
		}
		if n > 0 {
			return nil
		}
	}
}
