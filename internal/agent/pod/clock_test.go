package pod

import (
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestClockIsCorrectedAfterStart: a machine starts with a clock that is behind, so that the
// stored certificate isn't valid yet, and the stored document is from the future. When the
// clock is right, the agent uses both. It needs no operator for that.
//
// The test can't set the clock, so certificate and document are ahead of it instead.
func TestClockIsCorrectedAfterStart(t *testing.T) {
	c, _ := startCluster(t, "a")
	a := c.pods["a"]
	a.end()
	c.refuseWith("the operator is absent")
	c.publish()
	a.mount(map[string]string{})
	right := time.Now().Add(5 * time.Second) // when the clock would be right
	c.storeCertificate(a, right)
	stored := a.loadState()
	future := c.document(right.Add(24*time.Hour).UnixMilli(), "a")
	stored.Revision, stored.Document = future.Revision, encode(t, future)
	a.saveState(stored)
	a.start()
	a.awaitNotReady("waiting for a certificate")
	r := a.watch().await("a is the coordinator", hasCoordinator("a"))
	if r.Revision != future.Revision || time.Now().Before(right) {
		t.Errorf("got %+v, want the stored document once the clock is right", r)
	}
}

// storeCertificate replaces the stored certificate of a pod by one that is valid from a moment on.
func (c *cluster) storeCertificate(g *testPod, from time.Time) {
	c.t.Helper()
	der, key := c.sign(&x509.Certificate{
		NotBefore: from, NotAfter: from.Add(time.Hour),
		URIs:        []*url.URL{{Scheme: "conclave", Host: "bank", Path: "/ledger/" + g.name}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(c.t, err)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	must.Succeed(c.t, os.WriteFile(filepath.Join(g.settings.StateDir, "identity.pem"), text, 0o600))
}

// TestRenewalFollowsTheWallClock: a renewal is due by the time of day. A timer that began earlier doesn't count the
// time for which the machine was suspended, nor a correction of the clock.
func TestRenewalFollowsTheWallClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, ahead := time.Now(), atomic.Int64{}
		r := newCertificateRenewer(nil, nil, nil, nil)
		r.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		time.AfterFunc(time.Minute, func() { ahead.Store(int64(50 * time.Minute)) })
		if due := r.awaitRenewal(t.Context(), began.Add(30*time.Minute)); !due {
			t.Error("got no renewal")
		}
		expect.AtMostf(t, time.Since(began), time.Minute+clockInterval, "time until the renewal")
	})
}

func TestRenewalTime(t *testing.T) {
	received := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	for lasts, want := range map[time.Duration]struct{ first, last time.Duration }{
		30 * time.Hour: {13*time.Hour + 30*time.Minute, 15 * time.Hour},
		0:              {0, 0},
		-time.Hour:     {-time.Hour, -time.Hour}, // by a clock that is ahead: due at once
	} {
		at := renewalTime(received, received.Add(lasts)).Sub(received)
		if at < want.first || at > want.last {
			t.Errorf("a certificate for %s is renewed after %s, want %s to %s", lasts, at, want.first, want.last)
		}
	}
}

// TestMissingRenewalIsReported: a sixth of the lifetime is left, and the operator refuses to renew. The agent is ready,
// because it still takes part in the elections, but the operator learns the reason.
func TestMissingRenewalIsReported(t *testing.T) {
	c, _ := startCluster(t, "a")
	a := c.pods["a"]
	a.end()
	c.refuseWith("the operator is absent")
	received := time.Now().Add(-50 * time.Minute)
	c.storeCertificate(a, received)
	must.Succeed(t, os.Chtimes(filepath.Join(a.settings.StateDir, "identity.pem"), received, received))
	a.start()
	a.watch().await("a reports that its certificate expires", func(r control.Report) bool {
		return r.Coordinator == "a" && strings.Contains(strings.Join(r.Problems, ""), ", and can't be renewed: ")
	})
	if _, body := a.callLocalAPI("/readyz"); strings.Contains(body, "certificate") {
		t.Errorf("got %q, want no reason to be unready", body)
	}
	_, body := a.callLocalAPI("/readyz?verbose")
	expect.Containsf(t, body, "can't be renewed", "problem with verbose")
}
