package group

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Metrics count what happens in a group. Its goroutine writes them, and anybody may read what is exported.
type Metrics struct {
	Sent, Received ByKind
	// Refused are messages that were ignored because they were invalid or the configurations differed, Outdated those of
	// an earlier term, and Dropped those for which too many others waited.
	Refused, Outdated, Dropped atomic.Uint64
	// Suspicions are those of peers whose messages were missing, and FalseSuspicions those whose incarnation was alive.
	Suspicions, FalseSuspicions atomic.Uint64
	// Elections are the recognized coordinators, by the reason why there was none before.
	Elections [control.EndUnknown]atomic.Uint64
	// Tenures are those of this process.
	Tenures atomic.Uint64
	// Detection is the silence of a failed coordinator, Election the time without one, Tenure that of this process in
	// office, and Answer that from a heartbeat of this coordinator to the answer of a member.
	Detection, Election, Tenure, Answer Histogram

	// cause is why there is no coordinator.
	cause       control.EndCause
	tenureSince time.Time
}

// ByKind counts messages by their kind.
type ByKind [election.Probe + 1]atomic.Uint64

func (b *ByKind) add(kind election.Kind) {
	if int(kind) < len(b) {
		b[kind].Add(1)
	}
}

// Bounds are the upper bounds of the buckets of histograms, in seconds. They range from a crash that is detected at
// once to the longest lease.
var Bounds = [...]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 3600}

// Histogram counts durations.
type Histogram struct {
	Buckets [len(Bounds) + 1]atomic.Uint64
	Nanos   atomic.Int64 // the sum
}

func (h *Histogram) observe(d time.Duration) {
	i, _ := slices.BinarySearch(Bounds[:], d.Seconds())
	h.Buckets[i].Add(1)
	h.Nanos.Add(int64(d))
}

func (m *Metrics) event(event election.Event) {
	switch event.Kind {
	case election.TenureStarted:
		m.Tenures.Add(1)
		m.tenureSince = time.Now()
	case election.TenureLost, election.OfficeResigned:
		m.Tenure.observe(time.Since(m.tenureSince))
	case election.Outdated:
		m.Outdated.Add(1)
	case election.Refused:
		m.Refused.Add(1)
	default:
	}
}

// lost notes that there is no coordinator any more. silence is the time since the last message of the previous one.
func (m *Metrics) lost(cause control.EndCause, silence time.Duration) {
	m.cause = cause
	if cause == control.EndCrash || cause == control.EndSilence {
		m.Detection.observe(silence)
	}
}

// found notes that a coordinator was recognized, after this time without one.
func (m *Metrics) found(after time.Duration) {
	if m.cause < control.EndUnknown {
		m.Elections[m.cause].Add(1)
	}
	m.Election.observe(after)
}
