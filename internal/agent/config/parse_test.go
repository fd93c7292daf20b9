package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestParseGoldenFiles parses each file of testdata, and compares the configuration or
// the errors with the golden file.
func TestParseGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data := must.ReadFile(t, file)
			c, err := config.Parse("dir/agent.yaml", data)
			var got string
			if err != nil {
				got = err.Error() + "\n"
			} else {
				got = describeConfig(c)
			}
			golden.Compare(t, strings.TrimSuffix(file, ".yaml")+".txt", got)
		})
	}
}

// describeConfig describes a configuration as text.
func describeConfig(c *config.Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "self %s of %s, listen %s, api %s (expose %v), state %s, tls %+v\n",
		c.Self, c.Domain, c.Listen, c.API, c.ExposeAPI, c.State, c.TLS)
	for _, g := range c.Groups {
		fmt.Fprintf(&b, "\n%s: %s, %s with a lease of %v, %v at most, preemption %d after %v\n",
			g.Name, g.Algorithm, g.Safety.Mode, g.Safety.Usual(), g.Safety.Lease, g.Preemption.Policy, g.Preemption.Stable)
		fmt.Fprintf(&b, "  %+v\n  session %v", g.Timing, g.Session)
		if g.Probe != nil {
			fmt.Fprintf(&b, ", probe %+v", *g.Probe)
		}
		fmt.Fprintf(&b, "\n  version %d: %+v\n", g.List.Version, g.List.Members)
		if previous := g.List.Previous; previous != nil {
			fmt.Fprintf(&b, "  after %d: %+v\n", previous.Version, previous.Members)
		}
		fmt.Fprintf(&b, "  departed %v, floor %d\n", g.List.Departed, g.List.Floor)
	}
	for _, warning := range c.Warnings() {
		fmt.Fprintln(&b, "\nwarning:", warning)
	}
	return b.String()
}

const prelude = `self: a
listen: 127.0.0.1:7401
tls: {insecure: true}
groups:
`

func TestCountsAndLengthsAreBounded(t *testing.T) {
	member := "  - {name: a%d, priority: %d, address: \"127.0.0.1:%d\"}\n"
	list := func(n int) string {
		var b strings.Builder
		fmt.Fprint(&b, prelude, "- name: g\n  members:\n  - {name: a, priority: 0, address: \"127.0.0.1:7401\"}\n")
		for i := range n {
			fmt.Fprintf(&b, member, i, i, 8000+i)
		}
		return b.String()
	}
	groups := func(n int) string {
		var b strings.Builder
		b.WriteString(prelude)
		for i := range n {
			fmt.Fprintf(&b, "- {name: g%d, members: [{name: a, priority: 1, address: \"127.0.0.1:7401\"}]}\n", i)
		}
		return b.String()
	}
	long := strings.Repeat("a", 63)
	for _, c := range []struct{ name, text, want string }{
		{"100 members", list(99), ""},
		{"101 members", list(100), "f.yaml:7: members must have at most 100 entries, got 101"},
		{"100 groups", groups(100), ""},
		{"101 groups", groups(101), "f.yaml:5: groups must have at most 100 entries, got 101"},
		{"a long file", strings.Repeat("#", 1<<20+1), "f.yaml: must have at most 1048576 bytes"},
		{"a long domain", "domain: " + long + "\n" + groups(1), ""},
		{"a longer domain", "domain: " + long + "a\n" + groups(1), "f.yaml:1: domain must have at most 63 characters, got 64"},
		{"a long path", "state: " + strings.Repeat("a", 2049) + "\n" + groups(1), "f.yaml:1: state must have at most 2048 bytes, got 2049"},
		{"a deep file", strings.Repeat("[", 20_000), "f.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse("f.yaml", []byte(c.text))
			if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestErrorsAreBounded(t *testing.T) {
	_, err := config.Parse("f.yaml", []byte(strings.Repeat("x: 1\n", 1000)))
	var list config.Errors
	if !errors.As(err, &list) || len(list) != 101 {
		t.Fatalf("got %d errors: %v", len(list), err)
	}
	if last := list[100].Error(); last != "f.yaml: and 904 more errors" {
		t.Errorf("got last error %q", last)
	}
}

func TestLoadNamesMissingFile(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "agent.yaml"))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "agent.yaml") {
		t.Error(err)
	}
}

func TestLoadBoundsFileSize(t *testing.T) {
	_, err := config.Load("/dev/zero")
	if err == nil || !strings.Contains(err.Error(), "must have at most") {
		t.Error(err)
	}
}

// FuzzParse: for any input, each error is one line with a position, and an accepted
// configuration satisfies the invariants that the agent relies on.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		data := must.ReadFile(f, file)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("f.yaml", data)
		if err == nil {
			checkInvariants(t, c)
			return
		}
		var list config.Errors
		if !errors.As(err, &list) || len(list) == 0 || len(list) > 101 {
			t.Fatalf("got %T with %d errors", err, len(list))
		}
		most := bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")) + 2
		for i, one := range list {
			text := one.Error()
			if !strings.HasPrefix(text, "f.yaml:") || strings.ContainsAny(text, "\n\r") || len(text) > 600 {
				t.Errorf("%d: %q", i, text)
			}
			if one.Line < 0 || one.Line > most && !bytes.ContainsAny(data, "\u0085\u2028\u2029") {
				t.Errorf("line %d of %d: %q", one.Line, most, text)
			}
		}
	})
}

func checkInvariants(t *testing.T, c *config.Config) {
	t.Helper()
	if err := config.CheckReload(c, c); err != nil {
		t.Error("CheckReload without a change:", err)
	}
	if c.Self == "" || c.Listen == "" || len(c.Groups) == 0 {
		t.Errorf("got an incomplete configuration: %+v", c)
	}
	for _, g := range c.Groups {
		w := g.Timing
		if w.Heartbeat < time.Millisecond || w.SuspicionTimeout <= w.Heartbeat || w.ReplyTimeout < time.Millisecond || w.Stagger < 0 || w.DrainTimeout < 0 {
			t.Errorf("got inconsistent timing: %+v", w)
		}
		if !g.List.Has(c.Self) || g.List.Version == 0 {
			t.Errorf("got list %+v, want one with %s and a version", g.List, c.Self)
		}
	}
}
