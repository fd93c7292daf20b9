// Package standin is for tests: agents as the operator meets them, with real
// connections and certificates, that say and do what the test has them do.
package standin

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/control"
	"github.com/conclave-dev/conclave/internal/identity"
)

// Authority signs for everybody in a test.
type Authority struct {
	authority *identity.Authority
	pem       string
	operator  *identity.Files
}

// NewAuthority makes an authority, and the operator's certificate.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	authority, pair, err := identity.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{authority: authority, pem: string(pair.Cert)}
	a.operator = a.files(t, control.Operator)
	return a
}

// Client has the operator dial, as its credentials do.
func (a *Authority) Client(wanted ...identity.Name) *tls.Config { return a.operator.Client(wanted...) }

// Authorities are the certificates of all authorities.
func (a *Authority) Authorities() string { return a.pem }

func (a *Authority) files(t testing.TB, names ...identity.Name) *identity.Files {
	t.Helper()
	pair, err := a.authority.Issue(names, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	paths := identity.Paths{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
	for path, text := range map[string][]byte{paths.Cert: pair.Cert, paths.Key: pair.Key, paths.CA: []byte(a.pem)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := identity.Open(paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
