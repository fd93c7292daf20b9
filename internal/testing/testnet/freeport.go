// Package testnet is the network of tests and benchmarks: free ports for servers
// that need one in their configuration, and an in-memory network for tests in
// virtual time.
package testnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// The range is below the one that Linux dials from: a port of that one is free
// now, and gone before the server listens, once a machine is busy enough.
const (
	firstPort = 10_000
	lastPort  = 29_999
)

// tries is how many may be taken. More means that it isn't a matter of luck.
const tries = 100

// FreePort returns a port on which nobody listens, on any address.
func FreePort() (int, error) {
	var failed error
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port)) //nolint:noctx // nothing to wait for
		if err == nil {
			return port, listener.Close()
		}
		failed = err
	}
	return 0, errors.Join(fmt.Errorf("no free port between %d and %d", firstPort, lastPort), failed)
}
