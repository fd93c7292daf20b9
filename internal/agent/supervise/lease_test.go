package supervise

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestInvalidLeaseIsReportedInOneLine(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
	all := map[string]string{"namespace": "x", "ca.crt": ca}
	for _, name := range []string{"", "/x", "old/", "old/x/y", "old?x"} {
		_, err := newLease(Options{AlsoLease: name, ServiceAccount: accountOf(t, all), LeaseDuration: time.Second})
		expect.ErrorContainsf(t, err, "a Lease must be NAME or NAME/NAMESPACE, got \""+name, "%q", name)
	}
	for want, c := range map[string]struct {
		files    map[string]string
		duration time.Duration
	}{
		"": {all, time.Second},
		"a Lease needs the pod's service account: open ca.crt: no such file or directory": {
			map[string]string{"namespace": "x"}, time.Second,
		},
		"ca.crt in  has no certificate": {
			map[string]string{"namespace": "x", "ca.crt": "x"}, time.Second,
		},
		"the duration of a Lease must be at least 1s, got 999ms": {all, 999 * time.Millisecond},
	} {
		account, got := accountOf(t, c.files), ""
		if _, err := newLease(Options{AlsoLease: "old", ServiceAccount: account, LeaseDuration: c.duration}); err != nil {
			got = strings.ReplaceAll(strings.ReplaceAll(err.Error(), account+"/", ""), account, "")
		}
		expect.Equal(t, got, want)
	}
}

// accountOf returns the directory of a service account.
func accountOf(t *testing.T, files map[string]string) string {
	t.Helper()
	account := t.TempDir()
	for name, text := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(account, name), []byte(text), 0o600))
	}
	return account
}
