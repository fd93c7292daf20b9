package testnet

import (
	"fmt"
	"net"
	"testing"
)

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
			t.Errorf("got port %d, want a new one in the range", port)
		}
		seen[port] = true
	}
}
