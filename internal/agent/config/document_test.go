package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const document = `uid: 6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b
generation: 3
revision: 1795000000000
group:
  name: ledger
  algorithm: Bully
  safety: {mode: Strict, leaseMillis: 800}
  preemption: {policy: Never, stableMillis: 5000}
  timing: {heartbeatMillis: 200}
  application: {session: Required}
  version: 2
  members:
  - {name: a, priority: 10, address: "10.0.0.1:7373"}
  - {name: b, priority: 20, uid: 0b5c8f3e-1}
  previous: {version: 1, members: [{name: c, priority: 5, address: "10.0.0.1:7373"}], leaseMillis: 900}
  departed: [c]
  floor: 7
`

func TestParseDocument(t *testing.T) {
	g, err := config.ParseDocument("pushed", []byte(document))
	must.Succeed(t, err)
	from := config.Provenance{UID: "6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b", Generation: 3, Revision: 1795000000000}
	if g.Provenance != from || g.Name != "ledger" || g.Algorithm != "Bully" || g.Safety.Lease != 800*time.Millisecond || g.PreviousLease != 900*time.Millisecond || !g.Session {
		t.Errorf("got %+v", g)
	}
	if m := g.List.Members; len(m) != 2 || m[1] != (control.Member{Name: "b", Priority: 20, UID: "0b5c8f3e-1"}) || g.List.Previous.Members[0].Name != "c" || g.List.Floor != 7 {
		t.Errorf("got list %+v", g.List)
	}
}

// TestLongestLease: an operator waits for the longest lease that its documents name, and an older one for the only lease of them. An
// agent with a file derives the longest one.
func TestLongestLease(t *testing.T) {
	for leases, want := range map[string]config.Safety{
		"leaseMillis: 800":                           {Lease: 800 * time.Millisecond, UsualLease: 800 * time.Millisecond},
		"leaseMillis: 800, longestLeaseMillis: 2500": {Lease: 2500 * time.Millisecond, UsualLease: 800 * time.Millisecond},
	} {
		g, err := config.ParseDocument("pushed", []byte(strings.Replace(document, "leaseMillis: 800", leases, 1)))
		must.Succeed(t, err)
		if want.Mode = office.Strict; g.Safety != want || g.PreviousLease != 900*time.Millisecond {
			t.Errorf("%s: got %+v and %s, want %+v", leases, g.Safety, g.PreviousLease, want)
		}
	}
	for usual, want := range map[time.Duration]time.Duration{
		150 * time.Millisecond: 2 * time.Second, 500 * time.Millisecond: 2 * time.Second, time.Second: 2 * time.Second, 3 * time.Second: 3 * time.Second,
	} {
		if got := control.LongestLease(usual); got != want {
			t.Errorf("usually %s: got a longest lease of %s, want %s", usual, got, want)
		}
	}
}

func TestParseDocumentReportsErrors(t *testing.T) {
	for _, c := range []struct{ old, changed, want string }{
		{"uid: 6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b\n", "", "pushed:1: the document lacks uid"},
		{"6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b", "../x", `pushed:1: uid must be a UID such as 6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b, got "../x"`},
		{"generation: 3", "generation: -3", "pushed:2: generation must be an integer from 0 to 9223372036854775807, got -3"},
		{"revision: 1795000000000", "revision: 0", "pushed:3: revision must be an integer from 1 to 9223372036854775807, got 0"},
		{"group:", "groups:", "pushed:1: the document lacks group"},
		{"10.0.0.1:7373", "10.0.0.1", `pushed:13: address must be HOST:PORT such as 10.0.0.7:7401 or a.example.org:7401, got "10.0.0.1"`},
		{"priority: 20", "priority: 10", "pushed:14: priority 10 is already used in line 13: priorities above 0 must be unique; a member with priority 0 is never elected"},
		{"departed: [c]", "departed: [x]", "pushed:16: departed must name members of previous, got x"},
		{"{mode: Strict, leaseMillis: 800}", "{mode: Strict, leaseMillis: 300}", "pushed:7: leaseMillis (300) must be greater than two heartbeats (400): use 1000, for example"},
		{"leaseMillis: 800}", "leaseMillis: 800, longestLeaseMillis: 799}", "pushed:7: longestLeaseMillis (799) must be at least leaseMillis (800)"},
		{document, "", "pushed:1: the document must have uid, generation, revision and group, got an empty file"},
		{document, "- a", "pushed:1: the document must be a mapping, got a list"},
	} {
		text := strings.Replace(document, c.old, c.changed, 1)
		if g, err := config.ParseDocument("pushed", []byte(text)); err == nil || err.Error() != c.want {
			t.Errorf("with %q: got %+v\n%v\nwant\n%s", c.changed, g, err, c.want)
		}
	}
}

// TestParseDocumentIgnoresUnknownKeys: agents may be older than the operator, which is
// updated first. In a file of a user, an unknown key is an error, because it may be
// misspelled.
func TestParseDocumentIgnoresUnknownKeys(t *testing.T) {
	want, err := config.ParseDocument("pushed", []byte(document))
	must.Succeed(t, err)
	more := document + "  weather: {sky: [blue]}\nissuer: somebody\n"
	for _, has := range []string{"{mode: Strict, ", "{policy: Never, ", "{heartbeatMillis: 200", "{session: Required", "{name: a, ", "{version: 1, ", "{name: c, "} {
		more = strings.Replace(more, has, "{mood: {is: good}, "+has[1:], 1)
	}
	got, err := config.ParseDocument("pushed", []byte(more))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v: %v\n%s", got, want, err, more)
	}
	if _, err := config.ParseDocument("pushed", []byte(document+"? [a, b]\n: c\n")); err == nil {
		t.Error("got no error for a key that isn't a scalar")
	}
}

// TestCheckSafetyChange: the Available mode is fixed.
func TestCheckSafetyChange(t *testing.T) {
	for mode, allowed := range map[string]bool{"Strict, leaseMillis: 800": true, "Majority, leaseMillis: 800": true, "Strict, leaseMillis: 801": true, "Available, leaseMillis: 800": false} {
		before, err := config.ParseDocument("pushed", []byte(document))
		must.Succeed(t, err)
		next, err := config.ParseDocument("pushed", []byte(strings.Replace(document, "Strict, leaseMillis: 800", mode, 1)))
		must.Succeed(t, err)
		if err := next.CheckSafetyChange(*before); (err == nil) != allowed {
			t.Errorf("to %s: %v", mode, err)
		}
		if err := before.CheckSafetyChange(*next); (err == nil) != allowed {
			t.Errorf("from %s: %v", mode, err)
		}
	}
}
