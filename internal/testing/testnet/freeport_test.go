package testnet

import (
	"fmt"
	"net"
	"testing"
)

// TestFreePortCanBeListenedOn, again and again.
func TestFreePortCanBeListenedOn(t *testing.T) {
	seen := map[int]bool{}
	for range 20 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		if port < firstPort || port > lastPort || seen[port] {
			t.Errorf("port %d is not a free one of the range", port)
		}
		seen[port] = true
	}
}
