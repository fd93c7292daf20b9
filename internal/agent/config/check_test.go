package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.yaml")
	c, err := config.Parse(path, []byte(`self: a
listen: 10.0.0.1:7401
tls: {certFile: a.pem, keyFile: a-key.pem, caFile: ca.pem}
groups:
- name: ledger
  members: [{name: a, priority: 1, address: "10.0.0.1:7401"}]
- name: audit
  members: [{name: a, priority: 1, address: "10.0.0.1:7401"}]
`))
	must.Succeed(t, err)
	expect := func(want string) {
		t.Helper()
		if err := c.CheckFiles(); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	missing := ""
	for _, name := range []string{"a.pem", "a-key.pem", "ca.pem"} {
		missing += fmt.Sprintf("%s:3: tls: stat %s: no such file or directory\n", path, filepath.Join(dir, name))
	}
	expect(strings.TrimSpace(missing))

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
	expect(path + ":3: tls: " + filepath.Join(dir, "a.pem") + " and " + filepath.Join(dir, "a-key.pem") +
		": tls: failed to find any PEM data in certificate input")
	put(issue("ledger"))
	expect(path + ":7: the certificate in " + filepath.Join(dir, "a.pem") +
		" must include the name conclave://default/audit/a, got conclave://default/ledger/a")
	put(issue("ledger", "audit"))
	if err := c.CheckFiles(); err != nil {
		t.Error(err)
	}
}

func TestCheckFilesAcceptsInsecure(t *testing.T) {
	if err := parsed(t, running).CheckFiles(); err != nil {
		t.Error(err)
	}
}
