package transport

import (
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestRefusalWithoutRecordOfICMP: if the kernel can't tell why a dial was refused, the refusal isn't
// evidence that the process has ended. A socket without IP stands for such a kernel.
func TestRefusalWithoutRecordOfICMP(t *testing.T) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unix"})
	must.Succeed(t, err)
	defer listener.Close()
	raw, err := listener.SyscallConn()
	must.Succeed(t, err)
	var known, unknown refusal
	_ = unknown.watch(t.Context(), "tcp4", "", raw) // The socket hasn't the options of TCP either.
	if err := unknown.explain(syscall.ECONNREFUSED); !errors.Is(err, errRejected) || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want no evidence", err)
	}
	if err := unknown.explain(nil); err != nil {
		t.Errorf("got %v for a connection, want none", err)
	}
	if err := known.explain(syscall.ECONNREFUSED); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want the refusal", err)
	}
}
