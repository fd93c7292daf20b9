package freeport

import (
	"fmt"
	"net"
	"testing"
)

// TestFindFindsWhatCanBeListenedOn, again and again.
func TestFindFindsWhatCanBeListenedOn(t *testing.T) {
	seen := map[int]bool{}
	for range 20 {
		port, err := Find()
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		if port < first || port > last || seen[port] {
			t.Errorf("port %d is not a free one of the range", port)
		}
		seen[port] = true
	}
}
