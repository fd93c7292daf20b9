package group

import (
	"slices"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestEventsAreCounted(t *testing.T) {
	m := &Metrics{}
	m.lost(control.EndNone, time.Hour)
	m.found(30 * time.Millisecond)
	m.lost(control.EndCrash, 40*time.Millisecond)
	m.found(2 * time.Millisecond)
	m.lost(control.EndSilence, 90*time.Millisecond)
	m.lost(control.EndHandOver, time.Hour)
	m.Sent.add(election.Beat)
	m.Sent.add(255)
	for _, kind := range []election.EventKind{
		election.TenureStarted, election.TenureLost, election.Refused, election.Outdated,
	} {
		m.event(election.Event{Kind: kind})
	}
	for what, got := range map[string]uint64{
		"elections after the start": m.Elections[control.EndNone].Load(),
		"elections after a crash":   m.Elections[control.EndCrash].Load(),
		"messages":                  m.Sent[election.Beat].Load(),
		"tenures":                   m.Tenures.Load(),
		"refused messages":          m.Refused.Load(),
		"outdated messages":         m.Outdated.Load(),
		"detections below 50 ms":    m.Detection.Buckets[slices.Index(Bounds[:], .05)].Load(),
		"detections below 100 ms":   m.Detection.Buckets[slices.Index(Bounds[:], .1)].Load(),
		"elections below 2.5 ms":    m.Election.Buckets[slices.Index(Bounds[:], .0025)].Load(),
		"short tenures":             m.Tenure.Buckets[0].Load(),
	} {
		expect.Equalf(t, got, 1, "%s", what)
	}
	expect.Equalf(t, m.Election.Nanos.Load(), (32 * time.Millisecond).Nanoseconds(), "time without a coordinator")
	expect.Equalf(t, m.Detection.Nanos.Load(), (130 * time.Millisecond).Nanoseconds(), "silence")
}
