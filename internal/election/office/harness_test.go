package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// harness drives one process. The test plays all other processes.
type harness struct{ *group }

const self election.ID = 3

// newHarness returns a harness whose process the test starts.
func newHarness(t *testing.T, mode office.Mode, tune func(*office.Config)) *harness {
	capture := func(*election.Message) bool { return true }
	return &harness{&group{t: t, mode: mode, configure: tune, capture: capture}}
}

// newFollower returns process 3 of 1 to 5, which follows 4 in term 10.
func newFollower(t *testing.T, mode office.Mode, tune func(*office.Config)) *harness {
	t.Helper()
	h := newHarness(t, mode, tune)
	h.start(self, newRoster(t, 1, 1, 2, 3, 4, 5),
		func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, term(10), 4 })
	h.receive(4, election.Beat, term(10), election.Hold{})
	h.receive(4, election.Beat, term(10), election.Hold{Held: true})
	h.advance(1)
	return h
}

// newCandidate returns process 3 of 1 to 5 while it claims the office in term 20.
func newCandidate(t *testing.T, mode office.Mode, tune func(*office.Config)) *harness {
	t.Helper()
	h := newHarness(t, mode, tune)
	h.start(self, newRoster(t, 1, 1, 2, 3, 4, 5),
		func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, term(20), self })
	h.advance(1)
	return h
}

// receive delivers a message of another process. By default that is its first incarnation, and it has adopted list 1.
func (h *harness) receive(from election.ID, kind election.Kind, term election.Term, hold election.Hold) {
	h.t.Helper()
	if hold.Life == 0 {
		hold.Life = 1
	}
	if hold.Version == 0 {
		hold.Version = 1
	}
	if (kind == election.Grant || kind == election.Deny) && hold.RequesterLife == 0 {
		hold.RequesterLife = 1
	}
	subject := from
	if kind == election.Grant || kind == election.Deny {
		subject = election.None // the sender follows no coordinator
	}
	h.captured = nil
	h.input(self, election.Input{Kind: election.Receive, Message: election.Message{
		Kind: kind, From: from, To: self, Term: term, Subject: subject, Hold: hold,
	}})
}

// wantAnswer checks the kind of the last answer to a process.
func (h *harness) wantAnswer(to election.ID, want election.Kind) {
	h.t.Helper()
	got := election.NoKind
	for _, m := range h.captured {
		if m.To == to && m.Kind != election.Probe {
			got = m.Kind
		}
	}
	expect.Equalf(h.t, got, want, "at %d answer to process %d", h.now, to)
}

func (h *harness) countSent(kind election.Kind) (n int) {
	for _, m := range h.captured {
		if m.Kind == kind {
			n++
		}
	}
	return n
}

// TestMessageOfListFarAheadIsRefused: no honest process has a list that is newer by so much.
func TestMessageOfListFarAheadIsRefused(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	const ahead = 1 + 1<<26
	h.receive(5, election.Beat, termOf(ahead+1, 1), election.Hold{Held: true})
	h.receive(5, election.Beat, term(12), election.Hold{Held: true, Version: ahead + 1})
	h.receive(5, election.Deny, term(12), election.Hold{HighestGranted: termOf(ahead+1, 1)})
	h.receive(9, election.Beat, term(12), election.Hold{Held: true}) // not a member
	if n := h.countEvents(self, election.Refused); n != 4 || len(h.captured) != 0 {
		t.Errorf("got %d refusals and %d answers, want 4 and none", n, len(h.captured))
	}
	h.receive(5, election.Beat, termOf(ahead, 1), election.Hold{Version: ahead})
	h.wantAnswer(5, election.Deny)
}

// TestUnknownKindIsRefused also in an old term, to which the inner election would answer STALE.
func TestUnknownKindIsRefused(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	for _, kind := range []election.Kind{election.NoKind, election.Probe + 1, 255} {
		h.receive(5, kind, term(1), election.Hold{})
	}
	if n := h.countEvents(self, election.Refused); n != 3 || len(h.captured) != 0 {
		t.Errorf("got %d refusals and %d answers, want 3 and none", n, len(h.captured))
	}
}

func TestBeatOfResignedTermIsNotGranted(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(3 * lease)
		h.receive(5, election.Resigned, term(30), election.Hold{}) // it overtakes the claim
		h.receive(5, election.Beat, term(30), election.Hold{})
		h.wantAnswer(5, election.NoKind)
		h.receive(5, election.Beat, term(31), election.Hold{})
		h.wantAnswer(5, election.Grant)
	})
}

func TestEndOfProcessReleasesGrantInMajorityOnly(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 7}) // another life
		h.receive(5, election.Beat, term(11), election.Hold{})
		h.wantAnswer(5, election.Deny)
		h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
		h.receive(5, election.Beat, term(12), election.Hold{})
		if mode == office.Strict {
			h.wantAnswer(5, election.Deny)
			h.advance(lease)
			h.wantAnswer(5, election.Grant) // the claim was kept
			return
		}
		h.wantAnswer(5, election.Grant)
	})
}

func TestLateBeatOfFormerCoordinatorIsNotFollowed(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
	h.receive(5, election.Beat, term(12), election.Hold{Held: true})
	h.wantFollowed(5, self)
	h.receive(4, election.Beat, term(10), election.Hold{Held: true})
	h.wantFollowed(5, self)
	h.receive(5, election.Resigned, term(11), election.Hold{}) // from a claim before that
	h.wantFollowed(5, self)
	h.receive(5, election.Resigned, term(12), election.Hold{})
	h.wantFollowed(election.None, self)
}

func TestGrantCountsForItsTermOnly(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newCandidate(t, mode, nil)
		h.receive(1, election.Grant, term(20), election.Hold{Sent: h.now})
		h.receive(2, election.Grant, term(19), election.Hold{Sent: h.now})
		h.receive(4, election.Grant, term(20), election.Hold{Sent: h.now, RequesterLife: 2})
		h.receive(1, election.Grant, term(20), election.Hold{Sent: h.now}) // twice
		h.wantHolder(election.None)
		h.receive(5, election.Grant, term(20), election.Hold{Sent: h.now})
		h.wantHolder(self)
	})
}

func TestClaimIsAbandonedWhenMajorityRefuses(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newCandidate(t, mode, nil)
		claims := func() bool { return h.machines[self].Status().Electing && h.countEvents(self, election.Started) == 0 }
		h.receive(1, election.Deny, term(20), election.Hold{})
		h.receive(4, election.Grant, term(20), election.Hold{Sent: h.now})
		h.receive(2, election.Deny, term(19), election.Hold{})                 // it is of an older claim
		h.receive(2, election.Beat, term(19), election.Hold{})                 // so is this claim of another one
		h.receive(2, election.Deny, 0, election.Hold{})                        // not yet
		h.receive(4, election.Deny, term(25), election.Hold{RequesterLife: 9}) // another life's
		h.receive(5, election.Deny, term(25), election.Hold{})
		must.Equalf(t, claims(), true, "claims while three members may still grant")
		h.receive(2, election.Deny, term(20), election.Hold{})
		if h.countSent(election.Resigned) == 0 || claims() {
			t.Error("got a continued claim, want it abandoned when two members are left")
		}
		expect.Equalf(t, h.machines[self].Memory().PreviousHighest, 0, "highest granted term before the next claim")
		for _, m := range h.captured {
			if m.Kind == election.Election && m.Term <= term(20) {
				t.Errorf("got an election in term %d, want one above 20, which all members have granted", m.Term)
			}
		}
		h.answered(term(20), 1, 2, 4, 5)
		h.captured = nil
		h.advance(suspicionTimeout)
		next := h.claimed()[0]
		h.receive(2, election.Grant, next, election.Hold{Sent: h.now})
		h.wantHolder(election.None) // With the earlier claim, the grant of 4 was released.
		h.receive(5, election.Grant, next, election.Hold{Sent: h.now})
		h.wantHolder(self)
	})
}

func TestHolderDeadlineIsBeforeGrantsExpire(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newCandidate(t, mode, nil)
		for _, id := range []election.ID{1, 2} {
			h.receive(id, election.Grant, term(20), election.Hold{Sent: h.now})
		}
		h.wantHolder(self)
		until := h.machines[self].Status().Until
		h.now = until - 1
		h.step(self, election.Input{Kind: election.TimePassed}) // it was paused that long
		expect.AtMostf(t, h.machines[self].Deadline(), until, "deadline (when the tenure ends)")
		h.wantHolder(self)
		h.now = until
		h.receive(1, election.Grant, term(20), election.Hold{Sent: until - 5}) // too late to count
		h.receive(2, election.Grant, term(20), election.Hold{Sent: until - 5})
		expect.Equalf(t, h.countEvents(self, election.TenureLost), 1, "TenureLost")
		h.wantHolder(election.None)
	})
}

func TestStoppedWithoutRequestDoesntEndTenure(t *testing.T) {
	h := newCandidate(t, office.Majority, nil)
	h.receive(1, election.Grant, term(20), election.Hold{Sent: h.now})
	h.receive(2, election.Grant, term(20), election.Hold{Sent: h.now})
	h.input(self, election.Input{Kind: election.Stopped})
	h.wantHolder(self)
}

// TestTenureUnderNewListIsAboveTermsOfOlderOne: the processes of the new list know no term that was used before.
func TestTenureUnderNewListIsAboveTermsOfOlderOne(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 1, 2, 3, 4, 5).Succeed(first)
		g := newGroup(t, mode, 3, first, nil)
		g.crash(3, false)
		g.adopt(second, 1, 2)
		g.start(4, second, nil)
		g.start(5, second, nil)
		g.advance(8 * lease)
		g.wantHolder(5)
		expect.AtLeastf(t, g.machines[5].Status().Term, election.LastTerm(1)+1, "term of the tenure")
	})
}

func TestOlderListIsRefused(t *testing.T) {
	first := newRoster(t, 1, 1, 2, 3)
	second := newRoster(t, 2, 2, 3, 4).Succeed(first)
	g := newGroup(t, office.Majority, 3, first, nil)
	g.adopt(second, 2)
	g.adopt(first, 2)
	g.input(2, election.Input{Kind: election.Adopt})
	expect.Equalf(t, g.countEvents(2, election.Refused), 2, "refusals")
}

func TestRemovedCoordinatorHandsOver(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 1, 2, 4).Succeed(first)
		g := newGroup(t, mode, 3, first, nil)
		g.start(4, second, nil)
		g.advance(heartbeat)
		g.adopt(second, 1, 2, 3)
		g.advance(1)
		expect.Equalf(t, g.countEvents(3, election.OfficeResigned), 1, "resignation of process 3, which isn't a member")
		g.advance(3 * lease)
		g.wantHolder(4)
	})
}

// Two of the three members of the old list have departed. The third one never receives the new list.
func TestDepartedMembersSettleOldList(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 1, 4, 5).Succeed(first)
		g := &group{t: t, mode: mode}
		g.startAgreed(3, first)
		g.crash(3, false)
		g.crash(2, false)
		g.start(4, second, nil)
		g.start(5, second, nil)
		g.advance(4 * lease)
		g.wantHolder(election.None)
		g.adopt(second.Succeed(first, 2, 3), 4, 5)
		g.advance(4 * lease)
		g.wantHolder(5)
	})
}

// Two processes with different lists may each be the highest. They would bully
// each other out at the speed of the network, in a new term each time.
func TestLowerCoordinatorIsNotBulliedOut(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.receive(2, election.Coordinator, term(12), election.Hold{})
		for _, m := range h.captured {
			if m.Kind.Counts() {
				t.Errorf("got %s, want no message of an election", m.Describe())
			}
		}
	})
}
