package live

import (
	"context"
	"maps"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
)

// Signals are machines on which each container is a process of this computer.
type Signals struct {
	Machines

	PIDs func() map[string]int // by the ID of the container
	// Injected is called after each fault, unless it is nil.
	Injected func()
}

// Start and Stop do nothing.
func (Signals) Start(context.Context, Subject) error                { return nil }
func (Signals) notPossible(context.Context, string) (string, error) { return "", nil }
func (Signals) prepare(context.Context, *corev1.Pod) error          { return nil }
func (s Signals) undo(_ context.Context, _ string, f *nodefault.Request) error {
	return s.signal(f, syscall.SIGCONT)
}

func (s Signals) inject(_ context.Context, _ string, f *nodefault.Request) error {
	if s.Injected != nil {
		defer s.Injected()
	}
	return s.signal(f, map[string]syscall.Signal{nodefault.Stop: syscall.SIGSTOP, nodefault.Kill: syscall.SIGKILL}[f.Action])
}

func (s Signals) signal(f *nodefault.Request, signal syscall.Signal) error {
	pids := s.PIDs()
	if _, known := pids[f.Containers[0]]; !known {
		return &responseError{"no process among " + strings.Join(slices.Sorted(maps.Keys(pids)), ", ")}
	}
	return syscall.Kill(pids[f.Containers[0]], signal)
}
