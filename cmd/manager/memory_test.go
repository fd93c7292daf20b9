package main

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestMemoryLimitOfTheContainer(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, c := range []struct {
		limit, own string
		want       int64
	}{
		{"536870912", "", 357913940},
		{"536870912", "100MiB", math.MaxInt64},
		{"", "", math.MaxInt64},
		{"512Mi", "", math.MaxInt64}, // The kubelet gives bytes.
		{"0", "", math.MaxInt64},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv("MEMORY_LIMIT", c.limit)
		t.Setenv("GOMEMLIMIT", c.own)
		limitMemory()
		expect.Equalf(t, debug.SetMemoryLimit(-1), c.want,
			"with MEMORY_LIMIT=%s and GOMEMLIMIT=%s: bytes", c.limit, c.own)
	}
}
