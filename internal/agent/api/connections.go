package api

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// The maximum numbers of idle connections. An operator and a few readers of metrics,
// or the programs in the same pod, need far fewer.
const (
	operatorConnectionsMax = 128
	localConnectionsMax    = 512
)

// limitIdle returns a ConnState callback that limits the number of idle connections.
// It closes the one that has been idle for the longest time. It never closes a
// connection with an active request.
func limitIdle(limit int) func(net.Conn, http.ConnState) {
	var mu sync.Mutex
	var idle []net.Conn
	return func(conn net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		idle = slices.DeleteFunc(idle, func(other net.Conn) bool { return other == conn })
		if state != http.StateNew && state != http.StateIdle {
			return
		}
		idle = append(idle, conn)
		if len(idle) > limit {
			_ = idle[0].Close() // No request is active on it.
			idle = idle[1:]
		}
	}
}
