package testwait

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Log is an io.Writer that stores log messages, so that a test can wait for one:
//
//	testwait.Until(t, "the error is logged", func() bool { return log.Contains("cannot renew") })
//
// It is safe for concurrent use. The zero Log is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

// Logger returns a logger that writes to the Log.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// String returns everything that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Contains reports whether a text was logged.
func (l *Log) Contains(text string) bool { return strings.Contains(l.String(), text) }

// Count returns how often a text was logged.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }
