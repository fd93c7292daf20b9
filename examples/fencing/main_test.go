package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

func put(handler http.Handler, token, value string) int {
	request := httptest.NewRequest(http.MethodPut, "/", strings.NewReader(value))
	request.Header.Set(header, token)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Code
}

func TestLowerTokensAreRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "highest")
	r := &register{}
	f, err := open(path, r)
	must.Succeed(t, err)
	for _, c := range []struct {
		token, value string
		code         int
		after        string
	}{
		{"7", "a", http.StatusOK, "a"},
		{"7", "b", http.StatusOK, "b"},
		{"9", "c", http.StatusOK, "c"},
		{"8", "late", http.StatusConflict, "c"},
		{"-1", "bad", http.StatusBadRequest, "c"},
		{"", "bad", http.StatusBadRequest, "c"},
	} {
		if code := put(f, c.token, c.value); code != c.code || string(r.value) != c.after {
			t.Errorf("%q: got status %d and value %q, want %d and %q", c.token, code, r.value, c.code, c.after)
		}
	}
	restarted, err := open(path, r)
	must.Succeed(t, err)
	if code := put(restarted, "8", "late"); code != http.StatusConflict {
		t.Errorf("after a restart, got status %d for token 8, want 409", code)
	}
	must.Succeed(t, os.WriteFile(path, []byte("nine"), 0o600))
	if _, err := open(path, r); err == nil || !strings.Contains(err.Error(), "must have the highest token") {
		t.Errorf("got error %v for a file without a token", err)
	}
}

func TestTokenThatCannotBeStoredIsRejected(t *testing.T) {
	r := &register{}
	f := &fence{next: r, save: func(uint64) error { return errors.New("no space left") }}
	if code := put(f, "7", "a"); code != http.StatusInternalServerError || r.value != nil {
		t.Errorf("got status %d and value %q, want 500 and none", code, r.value)
	}
}

// A former coordinator's write may take long. The next coordinator's write doesn't begin before it has ended, or it could be overwritten.
func TestLaterCoordinatorWaitsForWritesOfFormerOne(t *testing.T) {
	began, both := make(chan struct{}), make(chan struct{})
	f := &fence{save: func(uint64) error { return nil }, next: http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		if request.Header.Get(header) == "8" {
			close(both)
			return
		}
		close(began)
		select {
		case <-both:
			t.Error("got a request with token 8 while one with token 7 was handled")
		case <-time.After(100 * time.Millisecond): // Nothing tells that the other request waits.
		}
	})}
	first := make(chan int)
	go func() { first <- put(f, "7", "a") }()
	<-began
	if code := put(f, "8", "b"); code != http.StatusOK {
		t.Errorf("got status %d for token 8, want 200", code)
	}
	if code := <-first; code != http.StatusOK {
		t.Errorf("got status %d for token 7, want 200", code)
	}
}
