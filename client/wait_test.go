package client

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// waitLimit is how long the tests wait. It is much longer than any test needs: only failing tests wait for it.
const waitLimit = 2 * time.Minute

// waitUntil waits until the condition holds.
func waitUntil(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met within %s: %s", waitLimit, what)
		}
	}
}

// receive waits for a value from a channel, or for its end.
func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(waitLimit):
		t.Fatalf("nothing received within %s: %s", waitLimit, what)
		panic("unreachable")
	}
}

// testLog stores log messages, so that a test can wait for one.
type testLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *testLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *testLog) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *testLog) Contains(text string) bool { return strings.Contains(l.String(), text) }
