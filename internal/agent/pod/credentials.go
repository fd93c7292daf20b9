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

// credentials are the agent's certificate with its key, and whom it trusts. They
// are in the state folder, where package identity looks at them: certificate and
// key in one file, so that they always go together.
type credentials struct {
	dir string
	// given are authorities that the pod names, for the identity service alone.
	configuredCAs []byte

	mu sync.Mutex
	// answered are the authorities of the last enrolment, mounted those beside the
	// documents: when authorities change, these come first.
	enrolledCAs, mountedCAs []byte
}

// openCredentials knows the authorities that are kept.
func openCredentials(s *Settings) (*credentials, error) {
	c := &credentials{dir: s.StateDir, configuredCAs: s.CABundle}
	var err error
	if c.enrolledCAs, err = os.ReadFile(c.path("authorities.pem")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the authorities that are kept: %w", err)
	}
	return c, nil
}

func (c *credentials) path(name string) string { return filepath.Join(c.dir, name) }

// paths are for package identity.
func (c *credentials) paths() identity.Paths {
	return identity.Paths{Cert: c.path("identity.pem"), Key: c.path("identity.pem"), CA: c.path("trusted.pem")}
}

// since is when the certificate was received.
func (c *credentials) receivedAt() time.Time {
	info, err := os.Stat(c.path("identity.pem"))
	if err != nil {
		return time.Now()
	}
	return info.ModTime()
}

// keep replaces certificate, key and authorities. Whoever looks in between sees the
// former certificate with the new authorities.
func (c *credentials) store(pair identity.Pair, authorities []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := state.ReplaceFile(c.path("authorities.pem"), authorities); err != nil {
		return fmt.Errorf("keep the authorities: %w", err)
	}
	c.enrolledCAs = authorities
	if err := c.writeTrustBundle(); err != nil {
		return err
	}
	if err := state.ReplaceFile(c.path("identity.pem"), append(bytes.Clone(pair.Cert), pair.Key...)); err != nil {
		return fmt.Errorf("keep the certificate: %w", err)
	}
	return nil
}

// mount takes note of the authorities that are mounted.
func (c *credentials) setMountedCAs(authorities []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Equal(authorities, c.mountedCAs) {
		return nil
	}
	c.mountedCAs = authorities
	return c.writeTrustBundle()
}

// trust writes whom peers and the operator are trusted by, if that is new.
func (c *credentials) writeTrustBundle() error {
	text := mergeCAs(c.enrolledCAs, c.mountedCAs)
	before, err := os.ReadFile(c.path("trusted.pem"))
	if err == nil && bytes.Equal(before, text) {
		return nil
	}
	if err := state.ReplaceFile(c.path("trusted.pem"), text); err != nil {
		return fmt.Errorf("keep whom to trust: %w", err)
	}
	return nil
}

// identityServiceCAs are the authorities by which the identity service is trusted, nil if
// there are none.
func (c *credentials) identityServiceCAs() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(mergeCAs(c.configuredCAs, c.enrolledCAs, c.mountedCAs)) {
		return nil
	}
	return pool
}

// union are all authorities in the texts, each once. A text that isn't in order has
// none.
func mergeCAs(texts ...[]byte) []byte {
	var all []byte
	seen := map[string]bool{}
	for _, text := range texts {
		certs, err := identity.ParseCABundle(text)
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
