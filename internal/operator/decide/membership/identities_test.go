package membership

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
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
	if again := f.step(); again.Published != after.Published {
		t.Errorf("got %+v, want no other document than %+v", again.Published, after.Published)
	}
}

// TestReplacedPods: a replaced pod is one version, and one version takes in all pods that are replaced while a list is
// adopted.
func TestReplacedPods(t *testing.T) {
	const n = 50
	f := newSelectorFacts(v1.PriorityFrom{Ordinal: v1.HighestFirst})
	for i := range n {
		f.addPod(fmt.Sprint("a-", i))
	}
	first := f.settle().List.Version
	f.replacePod("a-7")
	expect.Equalf(t, f.settle().List.Version, first+1, "version after one pod was replaced")

	f.replacePod("a-0")
	f.step()
	for i := 1; i < n; i++ {
		f.replacePod(fmt.Sprint("a-", i))
	}
	expect.Equalf(t, f.settle().List.Version, first+3, "version after all pods were replaced")
	for pod, identity := range f.Group.Status.Protocol.MemberList.Identities {
		expect.Equalf(t, string(identity), f.Agents[pod].Identity, "identity of %s", pod)
	}
}

// TestReplacedMemberHasEnded: its successor has reported the list for so long that its grants have expired.
func TestReplacedMemberHasEnded(t *testing.T) {
	f := newDeclaredFacts("a 1, b 2, c 3").addPods("a", "b", "c")
	f.step()
	f.replacePod("a")
	f.replacePod("b")
	const adopting = "v2 Adopting: a 1, b 2, c 3; after v1: a 1, b 2, c 3"
	expect.Equalf(t, formatList(f.step().List), adopting, "the next list")
	f.Adopted["a"] = true
	expect.Equalf(t, formatList(f.step().List), adopting, "a has adopted it")
	f.Adopted["b"] = true
	expect.Equalf(t, formatList(f.step().List), "v2 Settled: a 1, b 2, c 3; after v1: a 1, b 2, c 3", "b has adopted it")
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

// TestTermsOfListRunOut: the next list, with the same members, has new terms.
func TestTermsOfListRunOut(t *testing.T) {
	f := newDeclaredFacts("a 1")
	f.settle()
	f.changeAgent("a", func(a *facts.Agent) {
		a.Report = &control.Report{UID: "6f0c", Version: 1, UsedTerm: uint64(control.FirstTerm(1) + 1<<15)}
	})
	expect.Equalf(t, f.step().List.Version, 1, "after half of the terms: version")
	f.Agents["a"].Report.UsedTerm++
	expect.Equalf(t, f.step().List.Version, 2, "after more: version")
	f.Group.Status.Term = control.FirstTerm(70)
	expect.Equalf(t, f.settle().List.Version, 71, "a term of a list that isn't known: version")
	f.Group.Spec.Members = parseMembers("a 2")
	expect.Equalf(t, f.settle().List.Version, 72, "and the next version")
}
