// Command fencing protects a value by fencing tokens. After a coordinator has written
// the value, no former coordinator can write it, even if that process assumes that it
// is still coordinator. Usage:
//
//	go run ./examples/fencing
//	curl -X PUT -d hello 'http://127.0.0.1:8080/?token=29353636331530'
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// register stores the value. A real store keeps the highest token beside the value, and
// writes both in one transaction: UPDATE ... WHERE token <= $1.
type register struct {
	mu      sync.Mutex
	highest uint64
	value   []byte
}

var errFenced = errors.New("a later coordinator has written the value")

func (r *register) write(token uint64, value []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.highest {
		return fmt.Errorf("token %d is lower than %d: %w", token, r.highest, errFenced)
	}
	r.highest, r.value = token, value
	return nil
}

func (r *register) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	token, err := strconv.ParseUint(request.URL.Query().Get("token"), 10, 64)
	value, readErr := io.ReadAll(http.MaxBytesReader(w, request.Body, 1<<20))
	if err = errors.Join(err, readErr); err != nil || request.Method != http.MethodPut {
		http.Error(w, "method must be PUT, with ?token=NUMBER", http.StatusBadRequest)
	} else if err := r.write(token, value); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

func main() {
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: &register{}, ReadTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, "fencing:", server.ListenAndServe())
	os.Exit(1)
}
