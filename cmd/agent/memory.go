package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A small process speeds up failover: the kernel takes longer to end a larger one, and only then do its peers see their connections end.
const (
	// gcPercent makes the garbage collector run more often than by default.
	gcPercent = 50
	// startTime is the time after which an agent needs little of what it has needed for its start.
	startTime = 2 * time.Second
)

func reduceMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	time.AfterFunc(startTime, func() { _ = unmapProgram() }) // If it fails, the process is only larger.
}

// unmapProgram lets the kernel unmap the program's code and constants. What is used later is mapped again, from the page cache, at the
// price of a page fault for each 64 KiB.
func unmapProgram() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var access string
		if !strings.HasSuffix(line, " "+program+"\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &access); err != nil {
			return err
		}
		if strings.Contains(access, "w") { // The kernel would also forget what was written.
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
