package config_test

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

const running = `self: a
domain: default
api: 127.0.0.1:7374
listen: 127.0.0.1:7401
state: state
tls: {insecure: true}
groups:
- name: ledger
  algorithm: Bully
  safety: {mode: Majority}
  preemption: {policy: Never}
  timing: {heartbeatMillis: 100}
  application: {probe: {url: "http://127.0.0.1:1/"}}
  version: 3
  members:
  - {name: a, priority: 1, address: "127.0.0.1:7401"}
  - {name: b, priority: 2, address: "127.0.0.1:7402"}
`

// TestChanges edits the configuration of a running agent: old text, new text,
// old, new...; and shows what is said to that.
func TestChanges(t *testing.T) {
	const b, c = `{name: b, priority: 2, address: "127.0.0.1:7402"}`, `{name: c, priority: 2, address: "127.0.0.1:7402"}`
	const first, second = "  - {name: a, priority: 1, address: \"127.0.0.1:7401\"}\n", "  - " + b + "\n"
	previous := func(version, name string) string {
		return "previous: {version: " + version + `, members: [{name: a, priority: 1, address: "127.0.0.1:7401"}, ` +
			strings.Replace(b, "name: b", "name: "+name, 1) + "]}\n  members:"
	}
	for _, tc := range []struct {
		name string
		edit []string
		want string
	}{
		{"nothing", nil, ""},
		{"an address", []string{"7402", "7403"}, ""},
		{"a member", []string{b, c, "version: 3", "version: 4"}, ""},
		{"a version and nothing else", []string{"version: 3", "version: 4"}, ""},
		{"the list before is named", []string{b, c, "version: 3", "version: 4", "members:", previous("3", "b")}, ""},
		{"a jump from a named list", []string{b, c, "version: 3", "version: 9", "members:", previous("8", "x")}, ""},
		{"a new group", []string{"groups:", "groups:\n- {name: new, version: 5, members: [{name: a, priority: 1, address: \"127.0.0.1:7401\"}]}"}, ""},
		{"another name for the group", []string{"name: ledger", "name: book"}, ""},
		{
			"a name without a version",
			[]string{b, c},
			"f:14: group ledger: names, priorities or their order changed, but version is still 3: raise version to 4",
		},
		{
			"a priority without a version",
			[]string{"priority: 2", "priority: 3"},
			"f:14: group ledger: names, priorities or their order changed, but version is still 3: raise version to 4",
		},
		{
			"an order without a version",
			[]string{first + second, second + first},
			"f:14: group ledger: names, priorities or their order changed, but version is still 3: raise version to 4",
		},
		{
			"an older version",
			[]string{"version: 3", "version: 2"},
			"f:14: group ledger: version 2 is older than 3, which is in force: write version 3, or 4 if the members change",
		},
		{
			"no version",
			[]string{"  version: 3\n", ""},
			"f:8: group ledger: version 1 is older than 3, which is in force: write version 3, or 4 if the members change",
		},
		{
			"a jump",
			[]string{"version: 3", "version: 5"},
			"f:14: group ledger: version jumps from 3 to 5: write version 4, or the list of version 4 as previous",
		},
		{
			"another history",
			[]string{b, c, "version: 3", "version: 4", "members:", previous("3", "x")},
			"f:14: group ledger: previous isn't the list of version 3 that is in force: write that one, or leave previous out",
		},
		{"self", []string{"self: a", "self: b", "listen: 127.0.0.1:7401", "listen: 127.0.0.1:7402"}, `f:1: self can't change while the agent runs: restart the agent
f:4: listen can't change while the agent runs: restart the agent`},
		{"domain", []string{"domain: default", "domain: other"}, "f:2: domain can't change while the agent runs: restart the agent"},
		{"api", []string{"api: 127.0.0.1:7374", "api: 0.0.0.0:7374\nexposeAPI: true"}, `f:3: api can't change while the agent runs: restart the agent
f:4: exposeAPI can't change while the agent runs: restart the agent`},
		{"state", []string{"state: state\n", ""}, "f:1: state can't change while the agent runs: restart the agent"},
		{"tls", []string{"{insecure: true}", "{certFile: a, keyFile: b, caFile: c}"}, "f:6: tls can't change while the agent runs: restart the agent"},
		{"a group's settings", []string{
			"Bully", "RingSkip", "Majority", "Strict", "Never", "Always",
			"heartbeatMillis: 100", "heartbeatMillis: 101", ":1/", ":2/",
		}, `f:9: algorithm of group ledger can't change while the agent runs: restart the agent
f:10: safety of group ledger can't change while the agent runs: restart the agent
f:11: preemption of group ledger can't change while the agent runs: restart the agent
f:12: timing of group ledger can't change while the agent runs: restart the agent
f:13: application of group ledger can't change while the agent runs: restart the agent`},
		{"no probe", []string{"  application: {probe: {url: \"http://127.0.0.1:1/\"}}\n", ""}, "f:8: application of group ledger can't change while the agent runs: restart the agent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := running
			for i := 0; i < len(tc.edit); i += 2 {
				if !strings.Contains(text, tc.edit[i]) {
					t.Fatalf("there is no %q to replace", tc.edit[i])
				}
				text = strings.Replace(text, tc.edit[i], tc.edit[i+1], 1)
			}
			got := ""
			if err := config.CheckReload(parsed(t, running), parsed(t, text)); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestChangesGoByTheListInForce: the file may have been behind.
func TestChangesGoByTheListInForce(t *testing.T) {
	c := parsed(t, running)
	c.Groups[0].List.Version = 5
	next := parsed(t, strings.Replace(running, "version: 3", "version: 6", 1))
	if err := config.CheckReload(c, next); err != nil {
		t.Error(err)
	}
}

func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWarnings(t *testing.T) {
	for _, tc := range []struct{ mode, members, want string }{
		{"Majority", "abc", ""},
		{"Majority", "ab", "f:7: group g has two members: in Majority mode both must be there, so neither can take over from a dead one; add a third, which may have priority 0"},
		{"Strict", "ab", "f:7: group g has two members: in Strict mode both must be there, so neither can take over from a dead one; add a third, which may have priority 0"},
		{"Available", "ab", ""},
		{"Available", "a", "f:7: group g has one member: nobody takes over from it"},
		{"Available", "aBC", "f:7: group g has one member with a priority above 0: nobody takes over from it"},
	} {
		t.Run(tc.mode+" "+tc.members, func(t *testing.T) {
			var b strings.Builder
			b.WriteString(prelude + "- name: g\n  safety: {mode: " + tc.mode + "}\n  members:\n")
			for i, name := range strings.ToLower(tc.members) {
				priority := "0"
				if byte(name) == tc.members[i] {
					priority = string(rune('1' + i))
				}
				b.WriteString("  - {name: " + string(name) + ", priority: " + priority + ", address: \"127.0.0.1:740" + string(rune('1'+i)) + "\"}\n")
			}
			if got := strings.Join(parsed(t, b.String()).Warnings(), "\n"); got != tc.want {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
		})
	}
}
