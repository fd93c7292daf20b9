package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

const given = `uid: 6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b
generation: 3
revision: 1795000000000
group:
  name: ledger
  algorithm: Bully
  safety: {mode: Strict, leaseMillis: 800}
  preemption: {policy: Never, stableSeconds: 5}
  timing: {heartbeatMillis: 200}
  application: {session: Required}
  version: 2
  members:
  - {name: a, priority: 10, address: "10.0.0.1:7373"}
  - {name: b, priority: 20}
  previous: {version: 1, members: [{name: c, priority: 5, address: "10.0.0.1:7373"}]}
  departed: [c]
  floor: 7
`

func TestAGroupThatAnOperatorGivesOut(t *testing.T) {
	g, err := config.ParseDocument("pushed", []byte(given))
	if err != nil {
		t.Fatal(err)
	}
	from := config.Provenance{UID: "6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b", Generation: 3, Revision: 1795000000000}
	if g.Provenance != from || g.Name != "ledger" || g.Algorithm != "Bully" || g.Safety.Lease != 800*time.Millisecond || !g.Session {
		t.Errorf("understood as %+v", g)
	}
	if m := g.List.Members; len(m) != 2 || m[1] != (config.Member{Name: "b", Priority: 20}) || g.List.Previous.Members[0].Name != "c" || g.List.Floor != 7 {
		t.Errorf("its list is %+v", g.List)
	}
}

func TestWhatAnOperatorGivesOutIsCheckedAsAFileIs(t *testing.T) {
	for _, c := range []struct{ old, changed, complaint string }{
		{"uid: 6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b\n", "", "pushed:1: the document lacks uid"},
		{"6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b", "../x", `pushed:1: uid must be a UID such as 6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b, not "../x"`},
		{"generation: 3", "generation: -3", "pushed:2: generation must be a whole number from 0 to 9223372036854775807, not -3"},
		{"revision: 1795000000000", "revision: 0", "pushed:3: revision must be a whole number from 1 to 9223372036854775807, not 0"},
		{"group:", "groups:", "pushed:1: the document lacks group"},
		{"10.0.0.1:7373", "10.0.0.1", `pushed:13: address must be HOST:PORT such as 10.0.0.7:7401 or a.example.org:7401, not "10.0.0.1"`},
		{"priority: 20", "priority: 10", "pushed:14: priority 10 is taken in line 13 already: each needs one of its own, or 0 to never stand"},
		{"departed: [c]", "departed: [x]", "pushed:16: x can't have departed: it isn't a member of previous"},
		{"{mode: Strict, leaseMillis: 800}", "{mode: Strict, leaseMillis: 300}", "pushed:7: leaseMillis (300) must be more than two heartbeats (400): 1000 is usual"},
		{given, "", "pushed:1: the document is empty: it needs uid, generation, revision and group"},
		{given, "- a", "pushed:1: the document must be keys with values, not a list"},
	} {
		text := strings.Replace(given, c.old, c.changed, 1)
		if g, err := config.ParseDocument("pushed", []byte(text)); err == nil || err.Error() != c.complaint {
			t.Errorf("with %q: %+v\n%v\nwanted\n%s", c.changed, g, err, c.complaint)
		}
	}
}

// TestANewerOperatorSaysMore: while the manager is brought up to date, agents are
// older than it is. A file of a user's may be misspelt; there, no key is passed over.
func TestANewerOperatorSaysMore(t *testing.T) {
	want, err := config.ParseDocument("pushed", []byte(given))
	if err != nil {
		t.Fatal(err)
	}
	more := given + "  weather: {sky: [blue]}\nissuer: somebody\n"
	for _, has := range []string{"{mode: Strict, ", "{policy: Never, ", "{heartbeatMillis: 200", "{session: Required", "{name: a, ", "{version: 1, ", "{name: c, "} {
		more = strings.Replace(more, has, "{mood: {is: good}, "+has[1:], 1)
	}
	got, err := config.ParseDocument("pushed", []byte(more))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("understood as %+v, want %+v: %v\n%s", got, want, err, more)
	}
	if _, err := config.ParseDocument("pushed", []byte(given+"? [a, b]\n: c\n")); err == nil {
		t.Error("what isn't even a key is passed over")
	}
}

// TestPromisesOutliveSettings: what isn't promised may change.
func TestPromisesOutliveSettings(t *testing.T) {
	for mode, fits := range map[string]bool{"Strict, leaseMillis: 800": true, "Majority, leaseMillis: 800": true, "Strict, leaseMillis: 801": false, "Available, leaseMillis: 800": false} {
		before, err := config.ParseDocument("pushed", []byte(given))
		if err != nil {
			t.Fatal(err)
		}
		next, err := config.ParseDocument("pushed", []byte(strings.Replace(given, "Strict, leaseMillis: 800", mode, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if err := next.CheckSafetyChange(*before); (err == nil) != fits {
			t.Errorf("to %s: %v", mode, err)
		}
		if err := before.CheckSafetyChange(*next); (err == nil) != fits {
			t.Errorf("from %s: %v", mode, err)
		}
	}
}
