// Package exit ends the process.
package exit

import (
	"log/slog"
	"os"
	"time"
)

// logTimeout bounds how long the exit of the process waits for a log that nobody reads.
const logTimeout = 10 * time.Millisecond

// Now ends the process because another one may be coordinator now or soon.
func Now(log *slog.Logger, reason string) {
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		log.Error("exiting, because another process may be coordinator", "reason", reason)
	}()
	select {
	case <-logged:
	case <-time.After(logTimeout):
	}
	os.Exit(1)
}
