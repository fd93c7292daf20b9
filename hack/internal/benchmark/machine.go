package benchmark

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Machine describes the machine that runs this process.
func Machine() string {
	kernel := "of an unknown version"
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		kernel = unix.ByteSliceToString(name.Release[:])
	}
	return fmt.Sprintf("%d cores, Linux %s, %s", runtime.NumCPU(), kernel, runtime.Version())
}
