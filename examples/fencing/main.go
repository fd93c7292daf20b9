// Command fencing protects a value by fencing tokens. After a coordinator has written the value, no former coordinator
// can write it, even if that process assumes that it is still coordinator. Usage:
//
//	go run ./examples/fencing FILE
//	curl -X PUT -H 'Conclave-Token: 29353636331530' -d hello http://127.0.0.1:8080/
//
// The file has the highest token. Beside it, postgres.sql and redis.lua do the same in PostgreSQL and Redis.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// register stores a value.
type register struct {
	mu    sync.Mutex
	value []byte
}

func (r *register) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	value, err := io.ReadAll(http.MaxBytesReader(w, request.Body, 1<<20))
	if err != nil || request.Method != http.MethodPut {
		http.Error(w, "method must be PUT, with up to 1 MiB", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value = value
}

// open returns a fence whose highest token is in a file.
func open(path string, next http.Handler) (*fence, error) {
	f := &fence{next: next, save: func(token uint64) error { return replace(path, strconv.FormatUint(token, 10)) }}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return nil, err
	}
	if f.highest, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
		return nil, fmt.Errorf("%s must have the highest token: %w", path, err)
	}
	return f, nil
}

// replace replaces a file. After a crash, it has the earlier text or this one.
func replace(path, text string) error {
	temporary := path + ".new"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: fencing FILE")
		os.Exit(2)
	}
	handler, err := open(os.Args[1], &register{})
	if err == nil {
		server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
		err = server.ListenAndServe()
	}
	fmt.Fprintln(os.Stderr, "fencing:", err)
	os.Exit(1)
}
