package benchmark

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Machine describes the machine that runs a benchmark.
type Machine struct {
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	Kernel string `json:"kernel"`
}

// ThisMachine describes the machine that runs this process.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return m
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores, Linux %s, %s", m.Cores, m.Kernel, m.Go)
}
