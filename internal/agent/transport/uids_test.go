package transport_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// ofPod makes a member use the certificate of a pod.
func (h *harness) ofPod(uid string) func(*transport.Config) {
	return func(c *transport.Config) {
		h.t.Helper()
		paths := h.paths(name(c.Self))
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must.Succeed(h.t, err)
		cert, err := h.ca.Sign(identity.Names{name(c.Self)}, uid, key.Public(), time.Hour)
		must.Succeed(h.t, err)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		must.Succeed(h.t, err)
		for path, data := range map[string][]byte{paths.Cert: cert, paths.Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
			must.Succeed(h.t, os.WriteFile(path, data, 0o600))
		}
		files, err := identity.Open(paths, nil)
		must.Succeed(h.t, err)
		c.Security = transport.Certificates{Files: files, Domain: "default"}
	}
}

// The certificate of a former pod doesn't serve under the name of its successor, on the
// side that dials and on the one that accepts.
func TestCertificateOfAFormerPodIsRefused(t *testing.T) {
	h := newHarness(t)
	a, b := h.start("a", "127.0.0.1:0", 1, h.ofPod("uid-a")), h.start("b", "127.0.0.1:0", 2, h.ofPod("uid-b"))
	for _, m := range []*member{a, b} {
		m.SetUIDs(map[string][]string{"a": {"uid-a"}, "b": {"former-b", "uid-b"}})
	}
	a.SetPeers(map[string]string{"b": b.address})
	b.SetPeers(map[string]string{"a": a.address})
	a.waitConnected("b")
	b.waitConnected("a")

	// The operator publishes that b's pod was replaced.
	a.SetUIDs(map[string][]string{"b": {"next-b"}})
	testwait.Until(t, "a refuses the former pod", func() bool {
		return !a.Connected("b") && !b.Connected("a") && a.log.Contains("must be for its present pod, with UID next-b, got uid-b")
	})
	a.wantNoneEnded()
	a.SetUIDs(nil)
	a.waitConnected("b")

	b.SetUIDs(map[string][]string{"a": {"next-a"}})
	testwait.Until(t, "b refuses the former pod", func() bool {
		return !a.Connected("b") && !b.Connected("a") && b.log.Contains("must be for its present pod, with UID next-a, got uid-a")
	})
	b.SetUIDs(map[string][]string{"a": {"uid-a"}})
	b.waitConnected("a")
	a.waitConnected("b")
}

// TestCertificateWithoutUIDIsRefused where the member is a pod.
func TestCertificateWithoutUIDIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a, b := h.start("a", "127.0.0.1:0", 1), h.start("b", "127.0.0.1:0", 2)
	b.SetUIDs(map[string][]string{"a": {"uid-a"}})
	a.SetPeers(map[string]string{"b": b.address})
	b.SetPeers(map[string]string{"a": a.address})
	testwait.Until(t, "b refuses a", func() bool {
		return b.log.Contains("must be for its present pod, with UID uid-a, got none")
	})
	b.SetUIDs(nil)
	a.waitConnected("b")
	b.waitConnected("a")
}
