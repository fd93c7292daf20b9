package testnet

import (
	"fmt"
	"net"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestFreePortCanBeListenedOn(t *testing.T) {
	seen := map[int]bool{}
	for range 20 {
		port, err := FreePort()
		must.Succeed(t, err)
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		must.Succeed(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		if port < firstPort || port > lastPort || seen[port] {
			t.Errorf("got port %d, want a new one in the range", port)
		}
		seen[port] = true
	}
}
