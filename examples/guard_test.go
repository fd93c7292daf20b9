package examples

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"
	"time"
)

// TestGuardWorksWithinThePromise: another process may become coordinator once the promise is
// over, however slow the agent's response was.
func TestGuardWorksWithinThePromise(t *testing.T) {
	scriptCommand("curl", "shell/guard.sh")(t)
	for name, c := range map[string]struct {
		remaining string
		delay     time.Duration
		works     bool
	}{
		"in time":           {`,"remainingMillis":400`, 0, true},
		"without a promise": {"", 0, true},
		"a short promise":   {`,"remainingMillis":100`, 0, false},
		"a slow response":   {`,"remainingMillis":400`, 300 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan struct{}, 100)
			agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(c.delay) // It is what the test is about.
				fmt.Fprintf(w, `{"group":"ledger","leading":true,"term":7,"token":7340042%s}`, c.remaining)
				requests <- struct{}{}
			}))
			defer agent.Close()
			guard := exec.CommandContext(t.Context(), "sh", "shell/guard.sh", "ledger")
			var output bytes.Buffer
			guard.Env, guard.Stdout = append(guard.Environ(), "CONCLAVE_AGENT="+agent.URL), &output
			must(t, guard.Start())
			for range 10 {
				<-requests
			}
			must(t, guard.Process.Kill())
			_ = guard.Wait() // It was killed.
			if got := bytes.Contains(output.Bytes(), []byte("works with token 7340042\n")); got != c.works {
				t.Errorf("got output %q, want that the script works: %t", output.String(), c.works)
			}
		})
	}
}
