package clock

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

// TestTheWallClockIsReadOnce: what the time of day was at the start shifts all
// terms, and nothing else; ticks come from elsewhere.
func TestTheWallClockIsReadOnce(t *testing.T) {
	noon := time.Date(2027, time.March, 1, 12, 0, 0, 0, time.UTC)
	one, other := New(noon), New(noon.Add(time.Hour))
	if ahead := other.TermClock().AtBoot - one.TermClock().AtBoot; ahead != election.Term(time.Hour/TermDuration) {
		t.Errorf("an hour is %d terms", ahead)
	}
	for _, c := range []*Clock{one, other} {
		if boot := c.TermClock().Boot; boot < 1 || boot > c.Now() {
			t.Errorf("the start was at %d, now is %d", boot, c.Now())
		}
	}
	boot := one.TermClock()
	at := boot.Boot + election.Tick(time.Minute)
	before := one.TermClock().Ceiling(at)
	for range 1000 {
		if now := one.TermClock().Ceiling(at); now != before {
			t.Fatalf("the same tick was in term %d and is in %d", before, now)
		}
	}
	minute := election.Term(time.Minute / TermDuration)
	if terms := before - boot.AtBoot; terms != minute && terms != minute+1 { // One may be about to begin.
		t.Errorf("a minute is %d terms", terms)
	}
}

func TestAWallClockBeforeTheEpochReadsTermZero(t *testing.T) {
	if at := New(time.Unix(0, 0)).TermClock().AtBoot; at != 0 {
		t.Errorf("in 1970, the term is %d", at)
	}
}
