package pod

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

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

// TestMissingRenewalIsReported: a sixth of the lifetime is left, and the operator refuses to renew. The agent is ready, because it
// still takes part in the elections, but the operator learns the reason.
func TestMissingRenewalIsReported(t *testing.T) {
	t.Parallel()
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
	if _, body := a.callLocalAPI("/readyz?verbose"); !strings.Contains(body, "can't be renewed") {
		t.Errorf("got %q with verbose, want the problem", body)
	}
}
