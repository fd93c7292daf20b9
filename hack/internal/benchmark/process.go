package benchmark

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has used so far.
type Usage struct {
	CPU time.Duration
	// Resident is its memory now, in bytes, and Peak the most that it ever was.
	Resident, Peak int64
}

// MiB is a number of bytes in mebibytes.
func MiB(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// UsageOf looks at a process of this machine.
func UsageOf(pid int) (Usage, error) {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	cpu, err := cpuTime(folder)
	if err != nil {
		return Usage{}, fmt.Errorf("see how busy process %d was: %w", pid, err)
	}
	u := Usage{CPU: cpu}
	for field, into := range map[string]*int64{"VmRSS:": &u.Resident, "VmHWM:": &u.Peak} {
		if *into, err = memory(folder, field); err != nil {
			return Usage{}, fmt.Errorf("see how large process %d is: %w", pid, err)
		}
	}
	return u, nil
}

// cpuTime adds up the threads, in nanoseconds. The process's own stat counts in
// hundredths of seconds, which is more than an idle agent uses in 10 s.
func cpuTime(folder string) (time.Duration, error) {
	threads, err := filepath.Glob(filepath.Join(folder, "task", "*", "schedstat"))
	if err != nil || len(threads) == 0 {
		return 0, errors.Join(err, fmt.Errorf("no schedstat of threads in %s", folder))
	}
	var sum time.Duration
	for _, thread := range threads {
		content, err := os.ReadFile(thread)
		if err != nil {
			return 0, err
		}
		onCPU, _, _ := strings.Cut(string(content), " ")
		nanoseconds, err := strconv.ParseInt(onCPU, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", thread, err)
		}
		sum += time.Duration(nanoseconds)
	}
	return sum, nil
}

func memory(folder, field string) (int64, error) {
	file, err := os.Open(filepath.Join(folder, "status"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), field); found {
			kibibytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kibibytes << 10, err
		}
	}
	return 0, errors.Join(lines.Err(), fmt.Errorf("its status has no %s", field))
}
