package fakeagent

import (
	"context"
	"net"
	"sync"
)

// Network maps the addresses of pods to the loopback listeners of their fake agents.
// It exists because an API server rejects loopback addresses in EndpointSlices.
type Network struct {
	mu        sync.Mutex
	listeners map[string]string
}

// Dial connects to the fake agent at a pod's address.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	listener := n.Resolve(address)
	if listener == "" {
		// Nothing listens on this port.
		listener = "127.0.0.1:1"
	}
	return (&net.Dialer{}).DialContext(ctx, network, listener)
}

// Resolve returns the address of the listener, or "".
func (n *Network) Resolve(address string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listeners[address]
}

// Cut makes further connections to an address fail. Those that are open remain open, as if the
// node had been lost without closing them.
func (n *Network) Cut(address string) { n.route(address, "") }

func (n *Network) route(address, listener string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]string{}
	}
	n.listeners[address] = listener
}
