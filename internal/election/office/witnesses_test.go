package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// between reports whether a message is on the link between two processes.
func between(a, b election.ID) func(*election.Message) bool {
	return func(m *election.Message) bool { return m.From == a && m.To == b || m.From == b && m.To == a }
}

// A link stalls between the coordinator and the process that would succeed it. The third one hears both.
func TestStalledLinkMakesNoSecondCoordinator(t *testing.T) {
	g := newGroup(t, office.Available, 3, newRoster(t, 1, 1, 2, 3), nil)
	g.drop = between(2, 3)
	g.advance(3 * suspicionTimeout / 2)
	g.wantHolder(3)
	if known := g.machines[2].Status().Coordinator; known != election.None {
		t.Fatalf("2 knows coordinator %d, want that it has lost 3", known)
	}
	g.drop = nil
	g.advance(2 * heartbeat)
	g.wantHolder(3)
	g.wantFollowed(3, 1, 2)
	if n := g.countEvents(2, election.TenureStarted); n > 0 {
		t.Errorf("2 had %d tenures while its link stalled, want none", n)
	}
}

// The same link is broken for good, so that 2 needs a coordinator that it reaches.
func TestBrokenLinkMakesSecondCoordinator(t *testing.T) {
	g := newGroup(t, office.Available, 3, newRoster(t, 1, 1, 2, 3), nil)
	g.drop = between(2, 3)
	g.advance(4 * suspicionTimeout)
	if got := g.holders(); len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Errorf("got holders %v, want 2 and 3", got)
	}
}

// The coordinator is frozen. The others fall silent for nobody, so they say at once that they have lost it, too.
func TestFrozenCoordinatorIsReplacedWithoutDelay(t *testing.T) {
	for _, size := range []election.ID{2, 3, 5} {
		g := newGroup(t, office.Available, size, newRoster(t, 1, []election.ID{1, 2, 3, 4, 5}[:size]...), nil)
		g.crash(size, false)
		g.advance(suspicionTimeout + 2)
		g.wantHolder(size - 1)
	}
}

// The coordinator and a third process are frozen, which can't say whether they hear the coordinator.
func TestSilentWitnessDelaysByAHeartbeat(t *testing.T) {
	g := newGroup(t, office.Available, 4, newRoster(t, 1, 1, 2, 3, 4), nil)
	g.crash(4, false)
	g.crash(2, false)
	g.advance(suspicionTimeout + 2)
	if got := g.holders(); len(got) > 0 {
		t.Fatalf("got holders %v, want none yet", got)
	}
	g.advance(heartbeat)
	g.wantHolder(3)
}

// The link comes back, and the coordinator's answer to a probe arrives before its next BEAT. The coordinator ranks below 3.
func TestAnswerOfCoordinatorIsNoReasonToReplaceIt(t *testing.T) {
	for outage := suspicionTimeout + 1; outage < 2*suspicionTimeout; outage++ {
		g := newGroup(t, office.Available, 2, newRoster(t, 1, 1, 2, 3), nil)
		g.advance(2 * heartbeat)
		g.drop = between(2, 3)
		g.advance(outage)
		g.drop = nil
		g.advance(2 * suspicionTimeout)
		if n := g.countEvents(3, election.TenureStarted); n > 0 {
			t.Errorf("after %d ticks without the link: got %d tenures of 3, want none", outage, n)
			g.wantHolder(2)
		}
	}
}
