// Package freeport finds ports for servers that have to be told theirs, in tests
// and benchmarks.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// The range is below the one that Linux dials from: a port of that one is free
// now, and gone before the server listens, once a machine is busy enough.
const (
	first = 10_000
	last  = 29_999
)

// tries is how many may be taken. More means that it isn't a matter of luck.
const tries = 100

// Find finds one that nobody listens on, on any address.
func Find() (int, error) {
	var failed error
	for range tries {
		port := first + rand.IntN(last-first+1)
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port)) //nolint:noctx // nothing to wait for
		if err == nil {
			return port, listener.Close()
		}
		failed = err
	}
	return 0, errors.Join(fmt.Errorf("no free port between %d and %d", first, last), failed)
}
