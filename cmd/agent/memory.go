package main

import (
	"os"
	"runtime/debug"
)

// gcPercent makes the garbage collector run more often than by default. A smaller heap
// speeds up failover: the kernel takes longer to end a larger process, and only then do
// its peers see their connections end.
const gcPercent = 50

func reduceMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
