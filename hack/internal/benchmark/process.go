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

// Usage is the resource usage of a process.
type Usage struct {
	// CPU is the processor time since the process started.
	CPU time.Duration
	// Resident is the resident memory in bytes; Peak is its maximum so far.
	Resident, Peak int64
}

// MiB converts bytes to mebibytes.
func MiB(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// UsageOf returns the usage of a process on this machine.
func UsageOf(pid int) (Usage, error) {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	cpu, err := cpuTime(folder)
	if err != nil {
		return Usage{}, fmt.Errorf("cannot read the CPU time of process %d: %w", pid, err)
	}
	u := Usage{CPU: cpu}
	for field, into := range map[string]*int64{"VmRSS:": &u.Resident, "VmHWM:": &u.Peak} {
		if *into, err = memory(folder, field); err != nil {
			return Usage{}, fmt.Errorf("cannot read the memory usage of process %d: %w", pid, err)
		}
	}
	return u, nil
}

// cpuTime adds up the CPU times of all threads, which have a resolution of a nanosecond. The stat file of the process
// has a resolution of 10 ms, and an idle agent uses less than that in 10 s.
func cpuTime(folder string) (time.Duration, error) {
	threads, err := filepath.Glob(filepath.Join(folder, "task", "*", "schedstat"))
	if err != nil || len(threads) == 0 {
		return 0, errors.Join(err, fmt.Errorf("%s contains no schedstat files of threads", folder))
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
	return 0, errors.Join(lines.Err(), fmt.Errorf("the status file has no line %s", field))
}
