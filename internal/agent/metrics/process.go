package metrics

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// process writes the resource usage of this process, under the names that the client
// libraries of Prometheus use.
func (p *page) process() {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err == nil {
		seconds := float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
		p.header("process_cpu_seconds_total", "Total user and system CPU time in seconds.", "counter")
		fmt.Fprintf(p.w, "process_cpu_seconds_total %s\n", number(seconds))
	}
	if resident, ok := resident(); ok {
		p.header("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge")
		fmt.Fprintf(p.w, "process_resident_memory_bytes %d\n", resident)
	}
	p.header("go_goroutines", "Number of goroutines.", "gauge")
	fmt.Fprintf(p.w, "go_goroutines %d\n", runtime.NumGoroutine())
}

func resident() (int, bool) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.Atoi(string(fields[1]))
	return pages * os.Getpagesize(), err == nil
}
