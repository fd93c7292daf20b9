package workload

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/examples/internal/ledger"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// A ledger without new writes keeps its invariant. With --progress, check fails nevertheless.
func TestCheckFindsMissingProgress(t *testing.T) {
	server, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"))
	must.Succeed(t, err)
	defer server.Close()
	served := httptest.NewServer(server)
	defer served.Close()
	expect.Succeedf(t, check(t.Context(), []string{served.URL}), "without --progress")
	err = check(t.Context(), []string{"--progress=1ms", served.URL})
	expect.ErrorContainsf(t, err, "no progress: the ledger still has 0 writes after 1ms", "an error")
	client := ledger.Client{URL: served.URL}
	go func() {
		right := ledger.Entry{Resource: "device", Token: 7, By: "a"}
		for seq := uint64(1); t.Context().Err() == nil; seq++ {
			right.Seq = seq
			_ = client.Write(t.Context(), right) // It fails at the end of the test.
			Pause(t.Context(), time.Millisecond)
		}
	}()
	expect.Succeedf(t, check(t.Context(), []string{"--progress=5m", served.URL}), "while there are new writes")
}

func TestCheckOfStoppedLedgerEnds(t *testing.T) {
	for name, respond := range map[string]func(http.ResponseWriter){
		"no response": func(http.ResponseWriter) {},
		"no end": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				respond(w)
				<-ctx.Done()
			}))
			defer server.Close()
			defer cancel()
			if _, err := readLedger(ctx, server.URL, 100*time.Millisecond); err == nil ||
				!strings.Contains(err.Error(), "no complete response within 100ms") {
				t.Errorf("got error %v, want that the ledger doesn't respond", err)
			}
		})
	}
}
