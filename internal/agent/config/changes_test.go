package config_test

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/testing/must"
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

// TestCheckReload edits the configuration of a running agent, by pairs of old and new
// text, and compares the error.
func TestCheckReload(t *testing.T) {
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
		{"previous is specified", []string{b, c, "version: 3", "version: 4", "members:", previous("3", "b")}, ""},
		{"a jump with previous", []string{b, c, "version: 3", "version: 9", "members:", previous("8", "x")}, ""},
		{"a new group", []string{"groups:", "groups:\n- {name: new, version: 5, members: [{name: a, priority: 1, address: \"127.0.0.1:7401\"}]}"}, ""},
		{"another name for the group", []string{"name: ledger", "name: book"}, ""},
		{
			"a name without a version",
			[]string{b, c},
			"f: groups[0].version: names, priorities or their order changed, but version is still 3: increase version to 4",
		},
		{
			"a priority without a version",
			[]string{"priority: 2", "priority: 3"},
			"f: groups[0].version: names, priorities or their order changed, but version is still 3: increase version to 4",
		},
		{
			"an order without a version",
			[]string{first + second, second + first},
			"f: groups[0].version: names, priorities or their order changed, but version is still 3: increase version to 4",
		},
		{
			"an older version",
			[]string{"version: 3", "version: 2"},
			"f: groups[0].version: version must be 3, which is in force, or 4 if the members change, got 2",
		},
		{
			"no version",
			[]string{"  version: 3\n", ""},
			"f: groups[0].version: version must be 3, which is in force, or 4 if the members change, got 1",
		},
		{
			"a jump",
			[]string{"version: 3", "version: 5"},
			"f: groups[0].version: version must be 4, or previous must be the list of version 4, got version 5 after 3",
		},
		{
			"another previous list",
			[]string{b, c, "version: 3", "version: 4", "members:", previous("3", "x")},
			"f: groups[0].version: previous must be the list of version 3 that is in force: correct previous, or remove it",
		},
		{"self", []string{"self: a", "self: b", "listen: 127.0.0.1:7401", "listen: 127.0.0.1:7402"}, `f: self: cannot change while the agent runs: restart the agent
f: listen: cannot change while the agent runs: restart the agent`},
		{"domain", []string{"domain: default", "domain: other"}, "f: domain: cannot change while the agent runs: restart the agent"},
		{"api", []string{"api: 127.0.0.1:7374", "api: 0.0.0.0:7374\nexposeAPI: true"}, `f: api: cannot change while the agent runs: restart the agent
f: exposeAPI: cannot change while the agent runs: restart the agent`},
		{"state", []string{"state: state\n", ""}, "f: state: cannot change while the agent runs: restart the agent"},
		{"tls", []string{"{insecure: true}", "{certFile: a, keyFile: b, caFile: c}"}, "f: tls: cannot change while the agent runs: restart the agent"},
		{"a group's settings", []string{
			"Bully", "RingSkip", "Majority", "Strict", "Never", "Always",
			"heartbeatMillis: 100", "heartbeatMillis: 101", ":1/", ":2/",
		}, `f: groups[0].algorithm: cannot change while the agent runs: restart the agent
f: groups[0].safety: cannot change while the agent runs: restart the agent
f: groups[0].application: cannot change while the agent runs: restart the agent`},
		{"a group's lease, timing and policy", []string{"{mode: Majority}", "{mode: Majority, leaseMillis: 900}", "heartbeatMillis: 100", "heartbeatMillis: 101", "Never", "Always"}, ""},
		{"a lease and a mode", []string{"{mode: Majority}", "{mode: Strict, leaseMillis: 900}"}, "f: groups[0].safety: cannot change while the agent runs: restart the agent"},
		{"no probe", []string{"  application: {probe: {url: \"http://127.0.0.1:1/\"}}\n", ""}, "f: groups[0].application: cannot change while the agent runs: restart the agent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := running
			for i := 0; i < len(tc.edit); i += 2 {
				if !strings.Contains(text, tc.edit[i]) {
					t.Fatalf("cannot replace %q: not in the text", tc.edit[i])
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

// TestCheckReloadUsesListInForce: the list in force may be newer than the one in the
// file that the agent started with.
func TestCheckReloadUsesListInForce(t *testing.T) {
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
	must.Succeed(t, err)
	return c
}
