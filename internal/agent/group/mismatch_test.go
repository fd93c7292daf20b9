package group

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func ignoredBy(g *Group) map[string]string {
	_, ofPeers := g.Problems()
	return ofPeers
}

func member(name string, priority uint32) memberlist.Member {
	return memberlist.Member{Name: name, Priority: priority, Address: name + ":1"}
}

func TestPeersWithOtherConfigurationAreIgnored(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		one := memberlist.List{Version: 1, Members: []memberlist.Member{member("a", 10), member("b", 20)}}
		two := memberlist.List{Version: 2, Members: one.Members, Previous: one.Bare()}
		other := memberlist.List{Version: 1, Members: one.Members[:1]}
		majority := config.Safety{Mode: office.Majority, Lease: time.Second}
		for name, c := range map[string]struct {
			list   memberlist.List
			safety config.Safety
			want   string
		}{
			"the same": {two, majority, ""},
			"another address": {
				memberlist.List{Version: 2, Members: []memberlist.Member{
					{Name: "a", Priority: 10, Address: "x:1"}, one.Members[1],
				}, Previous: one.Bare()}, majority, "",
			},
			"an older version": {one, majority, ""},
			"another priority": {
				memberlist.List{Version: 2, Members: []memberlist.Member{member("a", 11), one.Members[1]}, Previous: one.Bare()},
				majority, "version 2",
			},
			"another order": {
				memberlist.List{Version: 2, Members: []memberlist.Member{one.Members[1], one.Members[0]}, Previous: one.Bare()},
				majority, "version 2",
			},
			"another list before": {
				memberlist.List{Version: 2, Members: one.Members, Previous: other.Bare()}, majority, "version 2",
			},
			"no list before":      {memberlist.List{Version: 2, Members: one.Members}, majority, "version 2"},
			"another lease":       {two, config.Safety{Mode: office.Majority, Lease: 2 * time.Second}, ""},
			"another mode":        {two, config.Safety{Mode: office.Strict, Lease: time.Second}, "mode"},
			"another lease, mode": {two, config.Safety{Mode: office.Strict, Lease: 2 * time.Second}, "mode"},
		} {
			a := newLoneMember(t, "a", func(g *config.Group) { g.List, g.Safety = two, majority })
			message := &wire.Message{
				Group: "ledger", Kind: election.Probe, Version: c.list.Version, Lease: election.Tick(c.safety.Lease),
				Digest: listDigest(c.list, c.safety.Mode), ConfigDigest: configDigest(config.Group{Safety: c.safety}),
			}
			a.ReceiveMessage(transport.Sender{Name: "b"}, message)
			must.Succeed(t, a.AwaitRoundTrip(testwait.Context(t)))
			problems := ignoredBy(a)["b"]
			if (problems == "") != (c.want == "") || !strings.Contains(problems, c.want) {
				t.Errorf("%s: got problems %q, want %q", name, problems, c.want)
			}
			message.Digest, message.ConfigDigest, message.Version = listDigest(two, majority.Mode),
				configDigest(config.Group{Safety: majority}), 2
			a.ReceiveMessage(transport.Sender{Name: "b"}, message)
			if _, err := a.Status(testwait.Context(t)); err != nil || len(ignoredBy(a)) != 0 {
				t.Errorf("%s: got problems %q, %v after the configurations match, want none", name, ignoredBy(a), err)
			}
		}
	})
}

// TestLeaseOfCoordinatorIsGranted: it is configured for a shorter one than the others, which wait no longer for it.
func TestLeaseOfCoordinatorIsGranted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newTunedCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(c *Config) {
			if c.Self != "c" {
				c.Group.Safety.Lease = 10 * testLease
			}
		}, nil)
		cluster.awaitFollowers("c", "a", "b")
		start := time.Now()
		cluster.isolate("c")
		waitFor(t, cluster.group("b"), "b leads", isLeading)
		expect.AtMostf(t, time.Since(start), 3*testLease, "time without a coordinator")
	})
}

// TestAlternatingConfigurationsAreBounded: a peer can't fill the log or change the report
// with each message. Its matching messages are accepted, and it remains a problem.
func TestAlternatingConfigurationsAreBounded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var logged bytes.Buffer
		a := newLoneMember(t, "a",
			func(g *config.Group) { g.List.Members = []memberlist.Member{member("a", 10), member("b", 20)} })
		matching := &wire.Message{
			Group: "ledger", Kind: election.Probe, Version: a.list.Version, Digest: a.listDigest, ConfigDigest: a.configDigest,
		}
		otherList, otherSafety := *matching, *matching
		otherList.Digest++
		otherSafety.ConfigDigest++
		must.Succeed(t, a.call(testwait.Context(t), func() {
			before := a.cfg.Log
			defer func() { a.cfg.Log = before }()
			a.cfg.Log = slog.New(slog.NewTextHandler(&logged, nil))
			for range 1000 {
				for _, message := range []*wire.Message{&otherList, matching, &otherSafety, &otherList} {
					expect.Equalf(t, a.configMatches(transport.Sender{Name: "b"}, message), message == matching, "configMatches")
				}
			}
		}))
		if lines := strings.Count(logged.String(), "\n"); lines == 0 || lines > mismatchChanges {
			t.Errorf("got %d lines in the log, want at most %d", lines, mismatchChanges)
		}
		expect.Lenf(t, ignoredBy(a), 1, "problems")
	})
}

// TestMismatchChangesAgainInNextPeriod: a mismatch that remained at the limit is resolved when the period is over.
func TestMismatchChangesAgainInNextPeriod(t *testing.T) {
	var m mismatch
	changes := 0
	now := mismatchPeriod
	for range 100 {
		for _, reason := range []string{"other", ""} {
			if m.change(reason, now) {
				changes++
			}
		}
	}
	if changes != mismatchChanges-1 || m.reason != "other" {
		t.Errorf("got %d changes to %q, want %d to a mismatch", changes, m.reason, mismatchChanges-1)
	}
	if m.change("", now+mismatchPeriod-1) || !m.change("", now+mismatchPeriod) {
		t.Error("want a change when the period is over, and not before")
	}
}

// TestDecodeMessageOfNewerList: the coordinator has adopted a newer list, and suspects
// or designates a member that this process doesn't know.
func TestDecodeMessageOfNewerList(t *testing.T) {
	n := newNames()
	self, b := n.add("a"), n.add("b")
	m, known := n.decode("b", &wire.Message{Kind: election.Beat, Subject: "b", List: []string{"new", "", "a"}}, self)
	if !known || m.Subject != b || len(m.List) != 2 || m.List[0] != election.None || m.List[1] != self {
		t.Errorf("BEAT: got %+v, %t", m, known)
	}
	if m, known := n.decode("b", &wire.Message{Kind: election.Resigned, Subject: "new"}, self); !known ||
		m.Subject != election.None {
		t.Errorf("RESIGNED: got %+v, %t", m, known)
	}
	for what, l := range map[string]*wire.Message{
		"the subject of an election": {Kind: election.Elect, Subject: "new"},
		"a name on a list":           {Kind: election.Election, List: []string{"new"}},
		"the origin":                 {Kind: election.Elect, Origin: "new"},
		"a clock":                    {Kind: election.Elect, Lamport: lamportMax},
	} {
		if _, known := n.decode("b", l, self); known {
			t.Errorf("%s is unknown: got a message, want none", what)
		}
	}
	if _, known := n.decode("new", &wire.Message{Kind: election.Probe}, self); known {
		t.Error("got a message from an unknown sender, want none")
	}
}

// TestConfigDigest: groups of the same name, but different UIDs, ignore each other. The
// operator may change a group from Majority to Strict and back.
func TestConfigDigest(t *testing.T) {
	digest := func(uid string, mode office.Mode) uint64 {
		return configDigest(config.Group{Provenance: config.Provenance{UID: uid}, Safety: config.Safety{Mode: mode}})
	}
	one := digest("u1", office.Majority)
	for what, c := range map[string]struct {
		digest uint64
		same   bool
	}{
		"another UID": {digest("u2", office.Majority), false},
		"no UID":      {digest("", office.Majority), false},
		"Available":   {digest("u1", office.Available), false},
		"Strict":      {digest("u1", office.Strict), true},
	} {
		expect.Equalf(t, c.digest == one, c.same, "%s: equal digests", what)
	}
}

// TestMismatchOfDepartedMemberIsNoProblem: such a mismatch would never be resolved.
func TestMismatchOfDepartedMemberIsNoProblem(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		one := memberlist.List{Version: 1, Members: []memberlist.Member{member("a", 10), member("b", 20)}}
		two := memberlist.List{Version: 2, Members: one.Members[:1], Previous: one.Bare()}
		three := memberlist.List{
			Version: 3, Members: one.Members[:1], Previous: &memberlist.List{Version: 2, Members: one.Members[:1]},
		}
		a := newLoneMember(t, "a", func(g *config.Group) { g.List = one })
		problems := func() int {
			a.ReceiveMessage(transport.Sender{Name: "b"},
				&wire.Message{Group: "ledger", Kind: election.Probe, Version: 1, ConfigDigest: 666})
			must.Succeed(t, a.AwaitRoundTrip(testwait.Context(t)))
			return len(ignoredBy(a))
		}
		adopt := func(list memberlist.List) {
			must.Succeed(t, a.adopt(testwait.Context(t), list, config.Provenance{}))
		}
		if problems() != 1 {
			t.Fatalf("got problems %q, want one about b", ignoredBy(a))
		}
		adopt(two)
		expect.Equalf(t, problems(), 1, "problems while b is on the previous list")
		adopt(three)
		expect.Lenf(t, ignoredBy(a), 0, "b has left: problems")
		expect.Equalf(t, problems(), 0, "problems when b has left and still sends")
	})
}
