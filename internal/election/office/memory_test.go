package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// restartRemembering ends a process without notice, and starts it with what it remembers.
func (g *group) restartRemembering(id election.ID, roster *election.Roster) {
	g.t.Helper()
	memory := g.machines[id].Memory()
	g.crash(id, false)
	g.start(id, roster, func(c *office.Config) { c.Memory = &memory })
}

// answerTo makes a process claim the office in the next term, and returns the answer.
func (g *group) answerTo(from, to election.ID, version uint32) election.Message {
	g.t.Helper()
	g.inFlight = nil
	term := max(g.machines[to].Memory().HighestGranted, election.FirstTerm(version)) + 1
	g.step(to, election.Input{Kind: election.Receive, Message: election.Message{
		Kind: election.Beat, From: from, To: to, Term: term, Hold: election.Hold{Life: 7, Sent: g.now, Version: version},
	}})
	sent := g.inFlight
	g.inFlight = nil
	for _, m := range sent {
		if m.To == from && (m.Kind == election.Grant || m.Kind == election.Deny) {
			return m
		}
	}
	g.t.Fatalf("at %d got %v, want an answer", g.now, sent)
	return election.Message{}
}

// A follower restarts, and the coordinator keeps its office with the grant of that follower
// alone. Without memory, the follower would not grant for a lease.
func TestTenureContinuesOverRestartOfFollower(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		roster := newRoster(t, 1, 1, 2, 3)
		g := newGroup(t, mode, 3, roster, nil)
		g.advance(3 * lease)
		g.crash(2, true)
		g.restartRemembering(1, roster)
		g.advance(3 * lease)
		g.wantHolder(3)
		expect.Equalf(t, g.countEvents(3, election.TenureLost), 0, "lost tenures")
	})
}

// A restarted follower keeps its promise to the coordinator, and grants its successor as
// soon as that is over: in Majority when it learns of the coordinator's end.
func TestRestartedFollowerKeepsItsPromise(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		roster := newRoster(t, 1, 1, 2, 3)
		g := newGroup(t, mode, 3, roster, nil)
		g.advance(3 * lease)
		end := g.machines[1].Memory().Until
		g.crash(3, false)
		g.restartRemembering(1, roster)
		expect.Equalf(t, g.answerTo(2, 1, 1).Kind, election.Deny, "answer while the promise is in force")
		g.input(1, election.Input{Kind: election.Ended, Peer: 3, Life: 1})
		if mode == office.Strict {
			for g.now < end {
				must.Equalf(t, g.answerTo(2, 1, 1).Kind, election.Deny, "answer while the promise is in force")
				g.now++
			}
		}
		expect.Equalf(t, g.answerTo(2, 1, 1).Kind, election.Grant, "answer after the promise")
	})
}

// A coordinator restarts. In Majority, it doesn't wait for its own grant to expire. In Strict it
// does, because its application may act as coordinator until then.
func TestRestartedCoordinatorReleasesItsOwnGrant(t *testing.T) {
	for mode, want := range map[office.Mode]election.Kind{office.Majority: election.Grant, office.Strict: election.Deny} {
		roster := newRoster(t, 1, 1, 2, 3)
		g := newGroup(t, mode, 3, roster, nil)
		g.advance(3 * lease)
		end := g.machines[3].Memory().Until
		g.restartRemembering(3, roster)
		expect.Equalf(t, g.answerTo(2, 3, 1).Kind, want, "%s: answer after the restart", mode)
		g.now = end
		expect.Equalf(t, g.answerTo(2, 3, 1).Kind, election.Grant, "%s: answer after the lease", mode)
	}
}

// TestOwnGrantCountsAtOnce: a candidate has granted another process, which is silent. Its own grant comes last.
func TestOwnGrantCountsAtOnce(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newHarness(t, mode, nil)
		h.start(self, newRoster(t, 1, 1, 2, 3, 4, 5), func(c *office.Config) {
			c.MemoryLost, c.Term, c.Coordinator = false, term(20), self
			c.Memory = &grants.Memory{Holder: grants.Holder{ID: 4}, Term: term(10), Version: 1, Until: heartbeat * 3 / 2}
		})
		h.advance(heartbeat + 1)
		h.receive(1, election.Grant, term(20), election.Hold{Sent: h.now})
		h.receive(2, election.Grant, term(20), election.Hold{Sent: h.now})
		h.wantHolder(election.None)
		h.advance(heartbeat/2 - 1)
		h.wantHolder(self)
	})
}

// A member granted under a list, restarts, and finds a newer list. It reports that it has
// adopted that only when the grant has expired.
func TestRestartedMemberReportsNewListAfterGrantsUnderOlderOne(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		g := newGroup(t, mode, 3, first, nil)
		g.advance(3 * lease)
		end := g.machines[1].Memory().Until
		g.restartRemembering(1, newRoster(t, 2, 1, 2, 4).Succeed(first))
		for ; g.now <= end; g.now++ {
			want := uint32(0)
			if g.now == end {
				want = 2
			}
			must.Equalf(t, g.answerTo(2, 1, 2).Hold.Version, want, "at %d: version as adopted", g.now)
		}
	})
}

func TestAvailableHasNoMemory(t *testing.T) {
	g := newGroup(t, office.Available, 3, newRoster(t, 1, 1, 2, 3), nil)
	memory := g.machines[1].Memory()
	c := office.Config{}
	g.start(1, newRoster(t, 1, 1, 2, 3), func(started *office.Config) { c = *started })
	c.Memory = &memory
	_, err := office.New(c)
	expect.ErrorContainsf(t, err, "no memory of grants in Available", "a memory in Available mode")
}

func TestTenuresOnClockThatIsAhead(t *testing.T) {
	want := office.TenureRecord{Short: 2, Since: 6, HeldBackUntil: 7}
	expect.Equal(t, office.TenureRecord{Short: 2, Since: 1, HeldBackUntil: 2}.Shifted(5), want)
}
