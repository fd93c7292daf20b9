package inject

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestInjectDoesNotWaitForeverForURL: each attempt has a time limit, also while the content arrives.
func TestInjectDoesNotWaitForeverForURL(t *testing.T) {
	before := urlTimeout
	urlTimeout = 20 * time.Millisecond
	defer func() { urlTimeout = before }()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("kind: ConfigMap\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	cmd := New()
	cmd.SetArgs([]string{"-f", server.URL + "/a.yaml", "--server", "http://127.0.0.1:1", "--agent-image", "conclave/agent:1"})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	if want := "cannot read " + server.URL + "/a.yaml: context deadline exceeded"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
}
