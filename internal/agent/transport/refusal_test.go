package transport

import (
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// TestRefusalWithoutRecordOfICMP: if the kernel can't tell why a dial was refused, the refusal isn't
// evidence that the process has ended. A socket without IP stands for such a kernel.
func TestRefusalWithoutRecordOfICMP(t *testing.T) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	raw, err := listener.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
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
