//go:build !conclave_clockfile

package clock

import "time"

// Wall returns the time of day.
func Wall() time.Time { return time.Now() }
