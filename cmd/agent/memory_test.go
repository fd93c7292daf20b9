package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// A program whose pages were unmapped runs on, and has fewer of them in memory.
func TestProgramIsUnmapped(t *testing.T) {
	before := residentFile(t)
	must.Succeed(t, unmapProgram())
	if after := residentFile(t); after > before*3/4 {
		t.Errorf("got %d KiB of files in memory, and %d KiB before, want a quarter less", after, before)
	}
}

// residentFile returns how much of the mapped files is in memory, in KiB.
func residentFile(t *testing.T) int {
	t.Helper()
	status := must.ReadFile(t, "/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	text, _, _ := strings.Cut(rest, "kB")
	kib, err := strconv.Atoi(strings.TrimSpace(text))
	must.Succeed(t, err)
	return kib
}
