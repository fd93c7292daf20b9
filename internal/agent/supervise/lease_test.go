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
	for want, c := range map[string]struct {
		files    map[string]string
		duration time.Duration
	}{
		"": {map[string]string{"namespace": "x", "ca.crt": ca}, time.Second},
		"a Lease needs the pod's service account: open ca.crt: no such file or directory": {
			map[string]string{"namespace": "x"}, time.Second,
		},
		"ca.crt in  has no certificate": {map[string]string{"namespace": "x", "ca.crt": "x"}, time.Second},
		"the duration of a Lease must be at least 1s, got 999ms": {
			map[string]string{"namespace": "x", "ca.crt": ca}, 999 * time.Millisecond,
		},
	} {
		account, got := t.TempDir(), ""
		for name, text := range c.files {
			must.Succeed(t, os.WriteFile(filepath.Join(account, name), []byte(text), 0o600))
		}
		if _, err := newLease(Options{AlsoLease: "old", ServiceAccount: account, LeaseDuration: c.duration}); err != nil {
			got = strings.ReplaceAll(strings.ReplaceAll(err.Error(), account+"/", ""), account, "")
		}
		expect.Equal(t, got, want)
	}
}
