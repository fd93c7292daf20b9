package agent

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestWrongListMakesOnlyItsMemberUnready: c has another list of the same version. The others are a majority.
func TestWrongListMakesOnlyItsMemberUnready(t *testing.T) {
	t.Parallel()
	g, listeners := newGroup(t, 3, office.Majority, "StatusTable")
	agents := map[string]*Agent{}
	for i, name := range []string{"a", "b", "c"} {
		own := g
		if name == "c" {
			own.List.Members = append([]memberlist.Member{}, g.List.Members...)
			own.List.Members[0].Priority = 15
		}
		agents[name] = startAgent(t, own, name, uint32(i+1), t.TempDir(), listeners[name])
	}
	testwait.Until(t, "a and b are ready and say what is wrong with c, and c isn't ready", func() bool {
		for _, name := range []string{"a", "b"} {
			own, others := agents[name].Problems()
			if len(own) > 0 || len(others) != 1 || !strings.Contains(others[0], "ignoring peer c: member list of version 1") {
				return false
			}
		}
		own, others := agents["c"].Problems()
		return len(own) == 2 && strings.Contains(own[0], "ignoring peer a") &&
			strings.Contains(own[1], "ignoring peer b") && len(others) == 0
	})
	if reported := agents["a"].reportedProblems(); len(reported) != 1 {
		t.Errorf("a reports %q, want the problem of c", reported)
	}
}

func TestAgentIsOutvoted(t *testing.T) {
	some := func(peers ...string) map[string]string {
		problems := map[string]string{}
		for _, p := range peers {
			problems[p] = "differs"
		}
		return problems
	}
	for _, c := range []struct {
		members          int
		refused, ignored map[string]string
		want             bool
	}{
		{1, nil, nil, false},
		{2, some("b"), nil, true},
		{3, some("b"), nil, false},
		{3, some("b"), some("b"), false},
		{3, some("b"), some("c"), true},
		{5, some("b"), some("c"), false},
		{5, some("b", "c"), some("d"), true},
		{5, some("b", "x"), some("y", "z"), false}, // These aren't members of this group.
	} {
		var g config.Group
		for i := range c.members {
			g.List.Members = append(g.List.Members, memberlist.Member{Name: string(rune('a' + i))})
		}
		expect.Equalf(t, isOutvoted(&g, c.refused, c.ignored), c.want,
			"%d members, refused %v, ignored %v", c.members, c.refused, c.ignored)
	}
}

// TestAbsentPeerIsNamedOnce: no process listens at its address for some seconds. That is no reason to be unready, and
// the operator knows it already.
func TestAbsentPeerIsNamedOnce(t *testing.T) {
	t.Parallel()
	g, listeners := newGroup(t, 2, office.Majority, "StatusTable")
	must.Succeed(t, listeners["b"].Close())
	log := &testwait.Log{}
	options := testOptions(t, 1, t.TempDir(), listeners["a"])
	options.Log = log.Logger()
	a := startWith(t, "a", options, g)
	const warning = "cannot connect to peer for a while"
	testwait.Until(t, "a names b, and dials again", func() bool {
		own, others := a.Problems()
		return len(own) == 0 && len(others) == 1 && strings.HasPrefix(others[0], "peer b: not connected for ") &&
			!strings.Contains(others[0], "for 5s") &&
			strings.Contains(others[0], "connection refused") && log.Contains(warning)
	})
	if reported := a.reportedProblems(); len(reported) > 0 {
		t.Errorf("a reports %q, want nothing", reported)
	}
	listener, err := transport.Listen(t.Context(), g.List.Members[1].Address)
	must.Succeed(t, err)
	startAgent(t, g, "b", 2, t.TempDir(), listener)
	testwait.Until(t, "a says that it is connected again", func() bool { return log.Contains("connected to peer again") })
	if _, others := a.Problems(); len(others) > 0 || log.Count(warning) != 1 {
		t.Errorf("got %q and %d warnings, want no problem and one warning", others, log.Count(warning))
	}
}

// TestLastPublicationWins: the document that was applied last, which comes first, may have been published before the
// others. For example, an agent that restarts applies those that it has stored in any order.
func TestLastPublicationWins(t *testing.T) {
	published := func(revision int64, members ...memberlist.Member) config.Group {
		return config.Group{
			Provenance: config.Provenance{Revision: revision}, List: memberlist.List{Version: 1, Members: members},
		}
	}
	renewed := published(9, memberlist.Member{Name: "b", Address: "10.0.0.9:7373", UID: "new-b"},
		memberlist.Member{Name: "c"})
	renewed.List.Previous = &memberlist.List{
		Members: []memberlist.Member{{Name: "d", UID: "d"}, {Name: "c", UID: "former-c"}},
	}
	c := &config.Config{Self: "a", Groups: []config.Group{
		published(5, memberlist.Member{Name: "b", Address: "10.0.0.5:7373", UID: "former-b"},
			memberlist.Member{Name: "e", UID: "e"}),
		renewed,
		published(9, memberlist.Member{Name: "b", Address: "10.0.0.9:7373", UID: "other-b"},
			memberlist.Member{Name: "c", Address: "10.0.0.3:7373"}),
	}}
	at, uids := peers(c)
	expect.DeepEqualf(t, at, map[string]string{"b": "10.0.0.9:7373", "c": "10.0.0.3:7373", "d": "", "e": ""},
		"addresses")
	expect.DeepEqualf(t, uids, map[string][]string{"b": {"new-b", "other-b"}, "d": {"d"}, "e": {"e"}}, "UIDs")
}
