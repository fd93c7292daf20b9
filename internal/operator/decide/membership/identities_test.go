package membership

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// replacePod replaces a pod by one with the same name.
func (f *planner) replacePod(name string) *corev1.Pod {
	pod := f.findPod(name)
	f.deletePod(name)
	next := f.addPod(name)
	next.UID = pod.UID + "'"
	f.changeAgent(name, func(a *facts.Agent) { a.Identity = identityOf(next) })
	return next
}

// TestIdentityOfMember: a member gets its identity within the version, in a newer document, and votes. Nothing else
// changes, and nothing is written after that.
func TestIdentityOfMember(t *testing.T) {
	f := newDeclaredFacts("a 1, b 2").addPods("a")
	before := f.step()
	b := f.addPod("b")
	after := f.step()
	was, is := before.Document.Group.Members, after.Document.Group.Members
	if was[0].Identity == "" || was[1].Identity != "" || is[0].Identity != was[0].Identity ||
		is[1].Identity != identityOf(b) {
		t.Errorf("got members %+v, and then %+v", was, is)
	}
	if after.List.Version != before.List.Version || after.Document.Revision <= before.Document.Revision {
		t.Errorf("got version %d and revision %d after %d and %d, want only a higher revision", after.List.Version,
			after.Document.Revision, before.List.Version, before.Document.Revision)
	}
	f.Agents["b"] = facts.Agent{} // another operator
	expect.Equalf(t, f.step().Published, after.Published, "the same document")
}

// TestReplacedPodsWhileTheListMustNotChange: they need the next list, although other members wait for a majority.
func TestReplacedPodsWhileTheListMustNotChange(t *testing.T) {
	f := newMajorityFacts("a 1, b 2, c 3", "a b c")
	f.Group.Spec.Members = parseMembers("a 1, b 2, c 3, d 4, e 5, f 6")
	f.replacePod("a")
	p := f.step()
	expect.Equalf(t, formatList(p.List), "v2 Adopting: a 1, b 2, c 3; after v1: a 1, b 2, c 3", "list")
	expect.Equalf(t, string(p.List.Identities["a"]), f.Agents["a"].Identity, "identity of a")
}

// TestVersionsFollowTheClock: a version exceeds those of earlier groups of the name. An operator whose clock is behind
// or decades ahead takes the next number.
func TestVersionsFollowTheClock(t *testing.T) {
	f := newDeclaredFacts("a 1")
	f.Now = time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC)
	first := f.step().List
	expect.Equalf(t, first.Version, 13_089_600, "first version (seconds since the beginning of 2026)")
	edit := func() int64 {
		f.Group.Spec.Members[0].Priority++
		return f.settle().List.Version
	}
	f.Now = f.Now.Add(-time.Hour)
	expect.Equalf(t, edit(), first.Version+1, "the clock is behind")
	f.Now = f.Now.AddDate(40, 0, 0)
	expect.Equalf(t, edit(), first.Version+2, "the clock is decades ahead")
	f.Now = f.Now.AddDate(-40, 0, 0).Add(time.Hour + time.Minute)
	f.Group.UID, f.Group.Status = "another", v1.ElectionGroupStatus{}
	expect.AtLeastf(t, f.step().List.Version, first.Version+3, "version of the next group of this name")
}
