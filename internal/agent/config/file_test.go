package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestParseGoldenFiles parses each file of testdata, and compares the configuration or the errors with the golden file.
func TestParseGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := config.Parse("dir/agent.yaml", must.ReadFile(t, file))
			got := fmt.Sprintln(err)
			if err == nil {
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
		if g.Service != nil {
			fmt.Fprintf(&b, "\n  service %+v", *g.Service)
		}
		fmt.Fprintf(&b, "\n  version %d: %+v\n", g.List.Version, g.List.Members)
		if previous := g.List.Previous; previous != nil {
			fmt.Fprintf(&b, "  after %d: %+v\n", previous.Version, previous.Members)
		}
		fmt.Fprintf(&b, "  departed %v\n", g.List.Departed)
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

// group is a valid group.
const group = "- {name: g, members: [{name: a, priority: 1, address: '127.0.0.1:7401'}]}\n"

// broken are files that testdata can't have.
var broken = []struct{ text, want string }{
	{"", "f.yaml: self: must be a name"},
	{"- a", "f.yaml: must be a mapping, got a list"},
	{prelude + "# \xff", "f.yaml: yaml: invalid leading UTF-8 octet"},
	{prelude + "# \x00", "f.yaml: yaml: control characters are not allowed"},
	{prelude + "\tx", "f.yaml: yaml: line 5: found character that cannot start any token"},
	{"state:\u0085&me a\n" + prelude, "f.yaml: must not have an anchor, such as &m: write out the value"},
	{strings.TrimSpace(prelude) + " []", "f.yaml: groups: must have from 1 to 100 entries, got 0"},
	{prelude + groups(101), "f.yaml: groups: must have from 1 to 100 entries, got 101"},
	{prelude + list(101), "f.yaml: groups[0].members: must have from 1 to 100 members, got 101"},
	{strings.Repeat("#", 1<<20+1), "f.yaml: must have at most 1048576 bytes"},
	{strings.Repeat("[", 20_000), "f.yaml: yaml: exceeded max depth of 10000"},
	{"domain: " + strings.Repeat("a", 64), "f.yaml: domain: must have at most 63 characters, got 64"},
	{"state: " + strings.Repeat("a", 2049), "f.yaml: state: must have at most 2048 bytes, got 2049"},
}

func groups(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Replace(group, "name: g", fmt.Sprintf("name: g%d", i), 1))
	}
	return b.String()
}

func list(n int) string {
	var b strings.Builder
	b.WriteString("- name: g\n  members:\n  - {name: a, priority: 0, address: '127.0.0.1:7401'}\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "  - {name: a%d, priority: %d, address: '127.0.0.1:%d'}\n", i, i, 8000+i)
	}
	return b.String()
}

func TestErrors(t *testing.T) {
	for _, c := range broken {
		_, err := config.Parse("f.yaml", []byte(c.text))
		expect.ErrorContainsf(t, err, c.want, "%.200s", c.text)
	}
	for _, text := range []string{prelude + groups(100), prelude + list(100)} {
		if _, err := config.Parse("f.yaml", []byte(text)); err != nil {
			t.Errorf("%.200s: %v", text, err)
		}
	}
}

func TestErrorsAreBounded(t *testing.T) {
	members := strings.Repeat("    - {name: A, priority: 20000, address: x}\n", 100)
	text := prelude + "- name: g\n  members:\n" + members
	_, err := config.Parse("f.yaml", []byte(text))
	var found config.Errors
	if !errors.As(err, &found) || len(found) != 101 || !strings.HasSuffix(err.Error(), "\nf.yaml: and 399 more errors") {
		t.Errorf("got %d errors: %v", len(found), err)
	}
}

func TestLoadNamesMissingFile(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "agent.yaml"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "agent.yaml") {
		t.Error(err)
	}
	_, err = config.Load("/dev/zero")
	expect.ErrorContainsf(t, err, "must have at most", "an endless file")
}

func TestAddressOfLocalAPI(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:7374":                      "",
		"unix:///run/conclave/agent.sock":     "",
		"unix://run/agent.sock":               "absolute path",
		"unix:///run/../agent.sock":           "absolute path",
		"unix:///":                            "absolute path",
		"unix:///" + strings.Repeat("x", 107): "at most 107 bytes, got 108",
		"unix:/run/agent.sock":                "absolute path after unix://",
		"unix:relative.sock":                  "absolute path after unix://",
		"unix:7374":                           "",
		"unixes:relative.sock":                "a port from 1 to 65535",
	} {
		switch err := config.CheckAPI(address); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.yaml")
	tls := "certFile: a.pem, keyFile: a-key.pem, caFile: ca.pem"
	c, err := config.Parse(path, []byte(strings.Replace(prelude, "insecure: true", tls, 1)+
		group+strings.Replace(group, "name: g", "name: audit", 1)))
	must.Succeed(t, err)
	expect := func(want string) {
		t.Helper()
		if err := c.CheckFiles(); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	missing := []string{}
	for _, file := range [][]string{{"certFile", "a.pem"}, {"keyFile", "a-key.pem"}, {"caFile", "ca.pem"}} {
		missing = append(missing, path+": tls."+file[0]+": stat "+filepath.Join(dir, file[1])+": no such file or directory")
	}
	expect(strings.Join(missing, "\n"))

	ca, caPair, err := identity.NewCA("test", time.Hour)
	must.Succeed(t, err)
	put := func(pair identity.Pair) {
		t.Helper()
		for name, data := range map[string][]byte{"a.pem": pair.Cert, "a-key.pem": pair.Key, "ca.pem": caPair.Cert} {
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
	}
	issue := func(groups ...string) identity.Pair {
		var names identity.Names
		for _, group := range groups {
			names = append(names, identity.Name{Domain: "default", Group: group, Member: "a"})
		}
		pair, err := ca.Issue(names, time.Hour)
		must.Succeed(t, err)
		return pair
	}
	put(identity.Pair{Cert: []byte("x"), Key: []byte("y")})
	expect(path + ": tls: " + filepath.Join(dir, "a.pem") + " and " + filepath.Join(dir, "a-key.pem") +
		": tls: failed to find any PEM data in certificate input")
	put(issue("g"))
	expect(path + ": tls.certFile: " + filepath.Join(dir, "a.pem") +
		" must include the name conclave://default/audit/a, got conclave://default/g/a")
	put(issue("g", "audit"))
	must.Succeed(t, c.CheckFiles())
	must.Succeed(t, parsed(t, prelude+group).CheckFiles())
}

// FuzzParse: for any input, each error is one line of bounded length, and an accepted
// configuration satisfies the invariants that the agent relies on.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		f.Add(must.ReadFile(f, file))
	}
	for _, c := range broken {
		f.Add([]byte(c.text))
	}
	for c := range strings.SplitSeq(string(must.ReadFile(f, "testdata/edits.txt")), "\n\n") {
		command, edits, _ := strings.Cut(c[strings.Index(c, "\n")+1:], "\n")
		if edits, _, ok := strings.Cut(edits, "\n----"); ok {
			f.Add(edit(f, texts[command], edits))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("f.yaml", data)
		checkErrors(t, err)
		if err == nil {
			must.Succeed(t, config.CheckReload(c, c))
			if c.Self == "" || c.Listen == "" || len(c.Groups) == 0 {
				t.Errorf("got an incomplete configuration: %+v", c)
			}
			for i := range c.Groups {
				if !c.Groups[i].List.Has(c.Self) {
					t.Errorf("got list %+v, want one with %s", c.Groups[i].List, c.Self)
				}
				checkGroup(t, &c.Groups[i])
			}
		}
		g, err := config.ParseDocument("f.yaml", data)
		checkErrors(t, err)
		if err == nil {
			checkGroup(t, g)
		}
	})
}

func checkErrors(t *testing.T, err error) {
	t.Helper()
	var found config.Errors
	if err != nil && (!errors.As(err, &found) || len(found) == 0 || len(found) > 101) {
		t.Fatalf("got %T with %d errors", err, len(found))
	}
	for i, text := range found {
		if !strings.HasPrefix(text, "f.yaml: ") || strings.ContainsAny(text, "\n\r") || len(text) > 700 {
			t.Errorf("%d: %q", i, text)
		}
	}
}

func checkGroup(t *testing.T, g *config.Group) {
	t.Helper()
	w := g.Timing
	if w.Heartbeat < time.Millisecond || w.SuspicionTimeout <= w.Heartbeat || w.ReplyTimeout < time.Millisecond ||
		w.Stagger < 0 || w.DrainTimeout < 0 || !g.LeaseSuitsTiming() || g.Safety.Lease < g.Safety.UsualLease {
		t.Errorf("got inconsistent timing: %+v, %+v", w, g.Safety)
	}
	if g.Name == "" || g.Algorithm == "" || len(g.List.Members) == 0 || g.List.Version == 0 {
		t.Errorf("got an incomplete group: %+v", g)
	}
}
