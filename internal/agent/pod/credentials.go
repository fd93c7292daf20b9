package pod

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
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
	// enrolledCAs are the CAs in the last enrollment response. mountedCAs are the CAs in the
	// pod's volumes, where a change of the CAs usually arrives first.
	enrolledCAs, mountedCAs []byte
	// storedMountedCAs are the mountedCAs in the trust bundle. They are older after an error.
	storedMountedCAs []byte
}

// openCredentials reads the stored CAs.
func openCredentials(s *Settings) (*credentials, error) {
	c := &credentials{dir: s.StateDir, configuredCAs: s.CABundle}
	var err error
	if c.enrolledCAs, err = os.ReadFile(c.path("authorities.pem")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the stored CA bundle: %w", err)
	}
	return c, nil
}

func (c *credentials) path(name string) string { return filepath.Join(c.dir, name) }

// paths returns the paths of the files for package identity.
func (c *credentials) paths() identity.Paths {
	return identity.Paths{Cert: c.path("identity.pem"), Key: c.path("identity.pem"), CA: c.path("trusted.pem")}
}

// receivedAt returns when the certificate was received.
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
	if err := state.ReplaceFile(c.path("authorities.pem"), caBundle); err != nil {
		return fmt.Errorf("cannot store the CA bundle: %w", err)
	}
	c.enrolledCAs = caBundle
	if err := c.writeTrustBundle(); err != nil {
		return err
	}
	if err := state.ReplaceFile(c.path("identity.pem"), append(bytes.Clone(pair.Cert), pair.Key...)); err != nil {
		return fmt.Errorf("cannot store the certificate: %w", err)
	}
	return nil
}

// setMountedCAs adds the CAs in the pod's volumes to the trusted ones. After an error, call
// it again.
func (c *credentials) setMountedCAs(caBundle []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mountedCAs = caBundle
	if bytes.Equal(caBundle, c.storedMountedCAs) {
		return nil
	}
	return c.writeTrustBundle()
}

// writeTrustBundle writes the CAs by which the agent trusts peers and the operator, if
// they have changed. The caller holds the lock.
func (c *credentials) writeTrustBundle() error {
	text := mergeCAs(c.enrolledCAs, c.mountedCAs)
	before, err := os.ReadFile(c.path("trusted.pem"))
	if err != nil || !bytes.Equal(before, text) {
		if err := state.ReplaceFile(c.path("trusted.pem"), text); err != nil {
			return fmt.Errorf("cannot store the trusted CAs: %w", err)
		}
	}
	c.storedMountedCAs = c.mountedCAs
	return nil
}

// identityServiceCAs returns the CAs by which the agent trusts the identity service, nil
// if there are none.
func (c *credentials) identityServiceCAs() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(mergeCAs(c.configuredCAs, c.enrolledCAs, c.mountedCAs)) {
		return nil
	}
	return pool
}

// mergeCAs returns the certificates of all bundles without duplicates. It ignores
// invalid bundles.
func mergeCAs(bundles ...[]byte) []byte {
	var all []byte
	seen := map[string]bool{}
	for _, bundle := range bundles {
		certs, err := identity.ParseCABundle(bundle)
		if err != nil {
			continue
		}
		for _, cert := range certs {
			if !seen[string(cert.Raw)] {
				seen[string(cert.Raw)] = true
				all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
			}
		}
	}
	return all
}
