package fakeagent

import (
	"context"
	"net"
	"sync"
)

// Network leads from the addresses of pods to where their understudies listen: on
// loopback, which no API server takes for the address of a pod behind a Service.
type Network struct {
	mu    sync.Mutex
	where map[string]string
}

// Dial connects with an understudy.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	where := n.Resolve(address)
	if where == "" {
		// A port that nobody listens on.
		where = "127.0.0.1:1"
	}
	return (&net.Dialer{}).DialContext(ctx, network, where)
}

// Resolve is the real address of an understudy.
func (n *Network) Resolve(address string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.where[address]
}

func (n *Network) lead(address, where string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.where == nil {
		n.where = map[string]string{}
	}
	n.where[address] = where
}
