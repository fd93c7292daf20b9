//go:build conclave_clockfile

package clock

import (
	"os"
	"strings"
	"time"
)

// Wall returns the time of day, shifted by the duration in the file that
// $CONCLAVE_TEST_CLOCK names. Only agents that package agentcluster builds for tests have
// this version.
func Wall() time.Time {
	text, err := os.ReadFile(os.Getenv("CONCLAVE_TEST_CLOCK"))
	if err != nil {
		return time.Now()
	}
	offset, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		panic("CONCLAVE_TEST_CLOCK must name a file with a duration: " + err.Error())
	}
	return time.Now().Add(offset)
}
