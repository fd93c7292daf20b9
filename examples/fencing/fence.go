package main

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
)

// header has the token of the coordinator that sends a request.
const header = "Conclave-Token"

// fence passes requests with the highest token so far to a handler, and rejects those with lower ones. It lets no
// request of a later coordinator begin before the handler has answered those of former ones, so the server needs
// timeouts.
type fence struct {
	next http.Handler
	// save stores the highest token before the first request with it, for the next start of the server.
	save func(token uint64) error

	mu      sync.RWMutex // A request holds it for reading.
	highest uint64
}

func (f *fence) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	token, err := strconv.ParseUint(request.Header.Get(header), 10, 64)
	if err != nil {
		http.Error(w, "the header "+header+" must have the coordinator's token", http.StatusBadRequest)
		return
	}
	if err := f.raise(token); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if token < f.highest {
		http.Error(w,
			fmt.Sprintf("token %d is too low: a coordinator with token %d has written", token, f.highest), http.StatusConflict)
		return
	}
	f.next.ServeHTTP(w, request)
}

// raise makes a token the highest one, unless it is lower.
func (f *fence) raise(token uint64) error {
	f.mu.RLock()
	raises := token > f.highest
	f.mu.RUnlock()
	if !raises {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if token <= f.highest {
		return nil
	}
	if err := f.save(token); err != nil {
		return err
	}
	f.highest = token
	return nil
}
