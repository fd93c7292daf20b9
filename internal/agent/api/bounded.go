package api

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// How many connections there can be that nothing is asked over: far more than an
// operator and a few readers of metrics need, or the programs beside an agent.
const (
	operatorConnectionsMax = 128
	localConnectionsMax    = 512
)

// bounded ends the connection that has been idle for longest when there are more
// than so many. One over which something is being answered is never ended.
func bounded(most int) func(net.Conn, http.ConnState) {
	var mu sync.Mutex
	var idle []net.Conn
	return func(conn net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		idle = slices.DeleteFunc(idle, func(one net.Conn) bool { return one == conn })
		if state != http.StateNew && state != http.StateIdle {
			return
		}
		idle = append(idle, conn)
		if len(idle) > most {
			_ = idle[0].Close() // Nobody waits for an answer there.
			idle = idle[1:]
		}
	}
}
