package group

import (
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

func member(name string, priority election.Priority) config.Member {
	return config.Member{Name: name, Priority: priority, Address: name + ":1"}
}

func TestPeersThatGoByOtherRulesAreNotListenedTo(t *testing.T) {
	one := config.List{Version: 1, Members: []config.Member{member("a", 10), member("b", 20)}}
	two := config.List{Version: 2, Members: one.Members, Previous: &one}
	other := config.List{Version: 1, Members: one.Members[:1]}
	majority := config.Safety{Mode: office.Majority, Lease: time.Second}
	for name, c := range map[string]struct {
		list   config.List
		safety config.Safety
		says   string
	}{
		"the same":             {two, majority, ""},
		"another address":      {config.List{Version: 2, Members: []config.Member{{Name: "a", Priority: 10, Address: "x:1"}, one.Members[1]}, Previous: &one}, majority, ""},
		"an older version":     {one, majority, ""},
		"another priority":     {config.List{Version: 2, Members: []config.Member{member("a", 11), one.Members[1]}, Previous: &one}, majority, "version 2"},
		"another order":        {config.List{Version: 2, Members: []config.Member{one.Members[1], one.Members[0]}, Previous: &one}, majority, "version 2"},
		"another list before":  {config.List{Version: 2, Members: one.Members, Previous: &other}, majority, "version 2"},
		"no list before":       {config.List{Version: 2, Members: one.Members}, majority, "version 2"},
		"another lease":        {two, config.Safety{Mode: office.Majority, Lease: 2 * time.Second}, "lease"},
		"another mode":         {two, config.Safety{Mode: office.Strict, Lease: time.Second}, "mode"},
		"an older one's lease": {one, config.Safety{Mode: office.Majority, Lease: 2 * time.Second}, "lease"},
	} {
		town := found(t, map[string]int{"a": 10}, func(g *config.Group) { g.List, g.Safety = two, majority; g.List.Members = two.Members })
		a := town.of("a")
		letter := &wire.Message{
			Group: "ledger", Kind: election.Probe, Version: c.list.Version,
			Digest: digest(c.list, c.safety.Mode), ConfigDigest: charter(config.Group{Safety: c.safety}),
		}
		a.ReceiveMessage("b", letter)
		if _, err := a.Status(soon(t)); err != nil {
			t.Fatal(err)
		}
		problems := strings.Join(a.Problems(), "\n")
		if (problems == "") != (c.says == "") || !strings.Contains(problems, c.says) {
			t.Errorf("%s: the problems are %q", name, problems)
		}
		letter.Digest, letter.ConfigDigest, letter.Version = digest(two, majority.Mode), charter(config.Group{Safety: majority}), 2
		a.ReceiveMessage("b", letter)
		if _, err := a.Status(soon(t)); err != nil || len(a.Problems()) != 0 {
			t.Errorf("%s: b has come round, but: %q, %v", name, a.Problems(), err)
		}
	}
}

// TestNewMembersDoNotMakeOldOnesDeaf: the coordinator goes by a newer list, and
// suspects or favours somebody of whom this member hasn't heard.
func TestNewMembersDoNotMakeOldOnesDeaf(t *testing.T) {
	n := newNames()
	self, b := n.add("a"), n.add("b")
	m, known := n.message("b", &wire.Message{Kind: election.Beat, Subject: "b", List: []string{"new", "", "a"}}, self)
	if !known || m.Subject != b || len(m.List) != 2 || m.List[0] != election.None || m.List[1] != self {
		t.Errorf("a BEAT is read as %+v, %t", m, known)
	}
	if m, known := n.message("b", &wire.Message{Kind: election.Resigned, Subject: "new"}, self); !known || m.Subject != election.None {
		t.Errorf("a RESIGNED is read as %+v, %t", m, known)
	}
	for what, l := range map[string]*wire.Message{
		"the subject of an election": {Kind: election.Elect, Subject: "new"},
		"who is on a list":           {Kind: election.Election, List: []string{"new"}},
		"the origin":                 {Kind: election.Elect, Origin: "new"},
		"a clock":                    {Kind: election.Elect, Lamport: lamportMax},
	} {
		if _, known := n.message("b", l, self); known {
			t.Errorf("%s makes no sense, and is read", what)
		}
	}
	if _, known := n.message("new", &wire.Message{Kind: election.Probe}, self); known {
		t.Error("a letter of a stranger is read")
	}
}

// TestGroupsOfTheSameNameAreStrangers; and what an operator gives out may change
// from Majority to Strict and back while members listen to each other.
func TestGroupsOfTheSameNameAreStrangers(t *testing.T) {
	of := func(uid string, mode office.Mode, lease time.Duration) uint64 {
		return charter(config.Group{Provenance: config.Provenance{UID: uid}, Safety: config.Safety{Mode: mode, Lease: lease}})
	}
	one := of("u1", office.Majority, time.Second)
	for what, c := range map[string]struct {
		charter uint64
		same    bool
	}{
		"another UID":   {of("u2", office.Majority, time.Second), false},
		"no UID":        {of("", office.Majority, time.Second), false},
		"another lease": {of("u1", office.Majority, 2*time.Second), false},
		"Available":     {of("u1", office.Available, time.Second), false},
		"Strict":        {of("u1", office.Strict, time.Second), true},
	} {
		if (c.charter == one) != c.same {
			t.Errorf("%s: the same is %t", what, c.charter == one)
		}
	}
}

// TestWhoHasLeftIsNoProblem, whatever it goes by: it will never come round.
func TestWhoHasLeftIsNoProblem(t *testing.T) {
	one := config.List{Version: 1, Members: []config.Member{member("a", 10), member("b", 20)}}
	two := config.List{Version: 2, Members: one.Members[:1], Previous: &one}
	three := config.List{Version: 3, Members: one.Members[:1], Previous: &config.List{Version: 2, Members: one.Members[:1]}}
	town := found(t, map[string]int{"a": 10}, func(g *config.Group) { g.List = one })
	a := town.of("a")
	problems := func() int {
		a.ReceiveMessage("b", &wire.Message{Group: "ledger", Kind: election.Probe, Version: 1, ConfigDigest: 666})
		if _, err := a.Status(soon(t)); err != nil {
			t.Fatal(err)
		}
		return len(a.Problems())
	}
	adopt := func(list config.List) {
		if err := a.Adopt(soon(t), list, config.Provenance{}); err != nil {
			t.Fatal(err)
		}
	}
	if problems() != 1 {
		t.Fatalf("b goes by other rules, and the problems are %q", a.Problems())
	}
	adopt(two)
	if problems() != 1 {
		t.Errorf("b is on the list before, and the problems are %q", a.Problems())
	}
	adopt(three)
	if len(a.Problems()) != 0 {
		t.Errorf("b has left, and the problems are %q", a.Problems())
	}
	if problems() != 0 {
		t.Errorf("b has left and still writes, and the problems are %q", a.Problems())
	}
}
