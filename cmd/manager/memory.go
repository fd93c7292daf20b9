package main

import (
	"os"
	"runtime/debug"
	"strconv"
)

// limitMemory makes the garbage collector run before the kernel kills the process. MEMORY_LIMIT is
// the limit of the container in bytes. A third of it is for what isn't on the heap: stacks, the
// program itself, and the heap's overhead. The runtime observes GOMEMLIMIT itself.
func limitMemory() {
	limit, err := strconv.ParseInt(os.Getenv("MEMORY_LIMIT"), 10, 64)
	if err != nil || limit <= 0 || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(limit / 3 * 2)
}

// maxGroups returns how many groups of a namespace the operator serves by default. Each takes up to 0.2 MiB, with a
// hundred members. So a namespace takes less than half of the memory.
func maxGroups(memoryLimit string) int {
	const ofGroup = 512 << 10
	limit, err := strconv.ParseInt(memoryLimit, 10, 64)
	if err != nil || limit <= 0 {
		limit = 512 << 20 // that of the manifests
	}
	return int(max(1, limit/ofGroup))
}
