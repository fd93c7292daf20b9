// Package testnet has free ports for the servers of tests and benchmarks that need one in their configuration.
package testnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// The range is below the ephemeral ports of Linux. On a busy machine, the kernel could
// give an ephemeral port to an outgoing connection before the server listens on it.
const (
	firstPort = 10_000
	lastPort  = 29_999
)

// tries bounds the attempts. If more ports are taken, the cause isn't chance.
const tries = 100

// FreePort returns a port on which nobody listens, on any address.
func FreePort() (int, error) {
	var failed error
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port)) //nolint:noctx // listening doesn't block
		if err == nil {
			return port, listener.Close()
		}
		failed = err
	}
	return 0, errors.Join(fmt.Errorf("cannot find a free port between %d and %d", firstPort, lastPort), failed)
}
