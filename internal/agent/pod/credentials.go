package pod

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// credentials are the agent's certificate, its key and its CA bundle. They are files in
// the state directory, which package identity reads. Certificate and key are in one
// file, so that they always match.
type credentials struct {
	dir string
	// configuredCAs are the CAs in the pod's environment. The agent trusts only the
	// identity service by them.
	configuredCAs []byte

	mu sync.Mutex
	// enrolledCAs are the CAs in the last enrollment response, by which the agent trusts peers and
	// the operator, too.
	enrolledCAs []byte
}

func openCredentials(s *Settings) (*credentials, error) {
	c := &credentials{dir: s.StateDir, configuredCAs: s.CABundle}
	var err error
	if c.enrolledCAs, err = os.ReadFile(c.paths().CA); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the stored CA bundle: %w", err)
	}
	return c, nil
}

func (c *credentials) path(name string) string { return filepath.Join(c.dir, name) }

// paths returns the paths of the files for package identity.
func (c *credentials) paths() identity.Paths {
	return identity.Paths{Cert: c.path("identity.pem"), Key: c.path("identity.pem"), CA: c.path("trusted.pem")}
}

func (c *credentials) receivedAt() time.Time {
	info, err := os.Stat(c.path("identity.pem"))
	if err != nil {
		return time.Now()
	}
	return info.ModTime()
}

// store replaces certificate, key and CA bundle. The CA bundle comes first, so that a
// reader never uses the new certificate with the previous CA bundle.
func (c *credentials) store(pair identity.Pair, caBundle []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := state.ReplaceFile(c.paths().CA, caBundle, 0o600); err != nil {
		return fmt.Errorf("cannot store the CA bundle: %w", err)
	}
	c.enrolledCAs = caBundle
	if err := state.ReplaceFile(c.path("identity.pem"), append(bytes.Clone(pair.Cert), pair.Key...), 0o600); err != nil {
		return fmt.Errorf("cannot store the certificate: %w", err)
	}
	return nil
}

// identityServiceCAs returns the CAs by which the agent trusts the identity service.
func (c *credentials) identityServiceCAs() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.configuredCAs)
	pool.AppendCertsFromPEM(c.enrolledCAs)
	return pool
}
