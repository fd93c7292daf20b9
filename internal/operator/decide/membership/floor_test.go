package membership

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// TestFloor is the history of the floor of one group. It rises when a list begins, members
// depart, or the list settles: to the operator's clock reading plus the accepted skew. If
// the clock is behind the floor, to the term that agents may have reached above it.
func TestFloor(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20, c 30, d 40, e 50")
	start := control.EpochAt(noon)
	const skew, reached = int64(control.AcceptedSkew / control.EpochDuration), 51
	at := func(d time.Duration) { f.Now = noon.Add(d) }
	f.step()
	for _, step := range []struct {
		name   string
		change func()
		floor  int64
	}{
		{"the second list", func() { f.Group.Spec.Members = parseMembers("a 10, b 20") }, skew},
		{"nothing changes", func() { at(time.Second) }, skew},
		{"a member departs", func() { f.Missing["c"] = true }, skew + reached},
		{"the clock goes on", func() { at(2 * time.Second) }, skew + reached},
		{"another one departs under the same version", func() { f.Missing["d"] = true }, skew + reached + 50},
		{"the list settles", func() { at(40 * time.Second); f.Adopted["a"] = true }, 1000 + skew},
		{"it has settled", func() { at(41 * time.Second) }, 1000 + skew},
		{"the third list begins soon", func() { clear(f.Adopted); clear(f.Missing); f.Group.Spec.Members = parseMembers("a 10") }, 1000 + skew + reached},
		{"another operator's clock is behind", func() { at(-time.Hour); f.Missing["b"] = true }, 1000 + skew + reached + 1},
		{"a newer term was reported", func() { f.Group.Status.Term = (start+2500)<<4 + 5; f.Adopted["a"] = true }, 2500},
		{"the fourth list begins later", func() { at(time.Hour); f.Group.Spec.Members = parseMembers("a 20") }, 90000 + skew},
	} {
		step.change()
		floor := *f.step().List.Floor
		if got := floor>>4 - start; got != step.floor {
			t.Errorf("%s: got the floor %d epochs above the first one, want %d", step.name, got, step.floor)
		}
		if counter := floor & 15; counter != 15 && counter != 5 {
			t.Errorf("%s: got floor %d, want the last term of an epoch, or the reported one", step.name, floor)
		}
	}
}

// TestFloorBoundsTermsThatTheOperatorHasNotSeen: members depart in quick succession, and between
// any two steps the others, whose clocks are ahead by the accepted skew, use the highest
// term that they may use. The operator sees none of these terms.
func TestFloorBoundsTermsThatTheOperatorHasNotSeen(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20, c 30, d 40, e 50, f 60, g 70")
	f.step()
	f.Group.Spec.Members = parseMembers("a 10")
	f.step()
	for i, departed := range []string{"b", "c", "d", "e"} {
		f.Now = noon.Add(time.Duration(i) * time.Second)
		list := f.Group.Status.Protocol.MemberList
		fastest := election.TermClock{
			AtBoot: election.Epoch(control.EpochAt(f.Now.Add(control.AcceptedSkew))), TicksPerEpoch: 1, ListFloor: election.Term(*list.Floor),
		}
		used := int64(fastest.Ceiling(0))
		f.Missing[departed] = true
		if floor := *f.step().List.Floor; floor < used {
			t.Errorf("after the departure of %s: got floor %d, want at least %d, which members may have used", departed, floor, used)
		}
	}
}

// TestAgentsReceiveTheFloor tests that a floor that has increased is in a newer document.
func TestAgentsReceiveTheFloor(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20, c 30")
	f.step()
	f.Group.Spec.Members = parseMembers("a 10")
	before := f.step().Document
	f.Now = noon.Add(time.Second)
	f.Missing["c"] = true
	after := f.step().Document
	if after.Group.Version != before.Group.Version || after.Group.Floor < before.Group.Floor+10 || after.Revision <= before.Revision {
		t.Errorf("got version %d, floor %d in revision %d after version %d, floor %d in revision %d; want a newer revision with a floor of at least 10 more",
			after.Group.Version, after.Group.Floor, after.Revision, before.Group.Version, before.Group.Floor, before.Revision)
	}
}

// TestTermsOfOperatorAndAgentsAgree tests that both derive the same term from the time.
func TestTermsOfOperatorAndAgentsAgree(t *testing.T) {
	for _, at := range []time.Time{noon, noon.Add(time.Second), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)} {
		agents := int64(clock.New(at).CurrentTerm())
		if operators := control.TermAt(at); operators > agents || agents > operators+10 {
			t.Errorf("at %v: got term %d of the operator, want %d as of the agents", at, operators, agents)
		}
	}
	if skew := election.Epoch(control.AcceptedSkew / control.EpochDuration); skew != election.AcceptedSkew {
		t.Errorf("got accepted skew of %d epochs, want %d as of the agents", skew, election.AcceptedSkew)
	}
	if control.MaxTerm != int64(election.MaxTerm) {
		t.Errorf("got maximum term %d, want %d as of the agents", control.MaxTerm, election.MaxTerm)
	}
}
