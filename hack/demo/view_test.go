package main

import (
	"strings"
	"testing"
	"time"
)

// The line about the locks says whether they are granted at present.
func TestViewShowsLocks(t *testing.T) {
	now := time.Unix(1000, 0)
	granted := locks{Granted: 1204, Tenures: 3, grown: now, read: now}
	stalled, silent, violated := granted, granted, granted
	stalled.grown = now.Add(-3 * time.Second)
	silent.read = now.Add(-4 * time.Second)
	violated.Violation = "line 7: duplicate"
	for want, l := range map[string]locks{
		"none granted yet":                                                {},
		"1204 granted, none held twice":                                   granted,
		"1204 granted, none held twice; no new one for 3s":                stalled,
		"1204 granted, none held twice; no response of the ledger for 4s": silent,
		"THE INVARIANT IS VIOLATED: line 7: duplicate":                    violated,
	} {
		v := view{locks: l, now: now}
		if got := strings.Join(v.lines(), "\n"); !strings.HasPrefix(got, "Locks        "+want+"\n") {
			t.Errorf("got\n%s\nwant its first line to be %q", got, want)
		}
	}
}
