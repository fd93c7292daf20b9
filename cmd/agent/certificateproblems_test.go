package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestCertificateProblems: a user must learn of them before peers refuse the agent's connections.
func TestCertificateProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, of, err := identity.NewCA("test", 24*time.Hour)
		must.Succeed(t, err)
		dir := t.TempDir()
		paths := identity.Paths{Cert: filepath.Join(dir, "a.pem"), Key: filepath.Join(dir, "a-key.pem"), CA: filepath.Join(dir, "ca.pem")}
		put := func(path string, data []byte) {
			must.Succeed(t, os.WriteFile(path+".new", data, 0o600))
			must.Succeed(t, os.Rename(path+".new", path)) // The times of both may be the same.
		}
		replace := func(valid time.Duration) {
			pair, err := ca.Issue(identity.Names{{Domain: "default", Group: "ledger", Member: "a"}}, valid)
			must.Succeed(t, err)
			put(paths.Cert, pair.Cert)
			put(paths.Key, pair.Key)
		}
		put(paths.CA, of.Cert)
		replace(10 * time.Hour)
		files, err := identity.Open(paths, nil)
		must.Succeed(t, err)
		var log bytes.Buffer
		go reloadCertificates(t.Context(), files, slog.New(slog.NewTextHandler(&log, nil)))
		check := func(after time.Duration, want string, wantLines int) {
			t.Helper()
			time.Sleep(after + 2*certificateInterval)
			synctest.Wait()
			own, others := certificateProblems(files)
			got := strings.Join(own, "\n") + "|" + strings.Join(others, "\n")
			if lines := strings.Count(log.String(), "\n"); !strings.HasPrefix(got, want) || want == "|" && got != want || lines != wantLines {
				t.Errorf("got problems %q and log %q, want %q and %d lines", got, &log, want, wantLines)
			}
		}
		const refused = "cannot load changed certificate files; the previous ones remain in use: "
		check(0, "|", 0)
		must.Succeed(t, os.Rename(paths.CA, paths.CA+".away"))
		check(0, refused, 0)
		must.Succeed(t, os.Rename(paths.CA+".away", paths.CA))
		check(0, "|", 0)
		replace(-time.Second)
		check(0, refused, 0)
		replace(10 * time.Hour)
		check(6*time.Hour, "|", 0)
		check(2*time.Hour, "|certificate expires at ", 1)
		check(time.Hour, "|certificate expires at ", 1)
		check(time.Hour, "certificate expired at ", 2)
		replace(10 * time.Hour)
		check(0, "|", 2)
	})
}
