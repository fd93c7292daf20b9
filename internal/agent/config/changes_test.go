package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/testing/expect"
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

// texts are what testdata/edits.txt edits.
var texts = map[string]string{"file": running, "reload": running, "document": document}

// edit replaces parts of a text, for each line OLD => NEW.
func edit(t testing.TB, text, edits string) []byte {
	t.Helper()
	for line := range strings.SplitSeq(edits, "\n") {
		before, after, ok := strings.Cut(strings.ReplaceAll(line, `\n`, "\n"), " =>")
		if !ok || !strings.Contains(text, before) {
			t.Fatalf("cannot apply %q", line)
		}
		text = strings.Replace(text, before, strings.TrimPrefix(after, " "), 1)
	}
	return []byte(text)
}

func TestEdits(t *testing.T) {
	datadriven.RunTest(t, "testdata/edits.txt", func(t *testing.T, d *datadriven.TestData) string {
		text := edit(t, texts[d.Cmd], d.Input)
		var err error
		switch d.Cmd {
		case "document":
			_, err = config.ParseDocument("f", text)
		default:
			var next *config.Config
			if next, err = config.Parse("f", text); err == nil && d.Cmd == "reload" {
				err = config.CheckReload(parsed(t, running), next)
			}
		}
		return fmt.Sprintln(err)
	})
}

// TestCheckReloadUsesListInForce: the list in force may be newer than the one in the file that the agent started with.
func TestCheckReloadUsesListInForce(t *testing.T) {
	c := parsed(t, running)
	c.Groups[0].List.Version = 5
	next := parsed(t, strings.Replace(running, "version: 3", "version: 6", 1))
	expect.Succeed(t, config.CheckReload(c, next))
}

func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("f", []byte(text))
	must.Succeed(t, err)
	return c
}
