package examples

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
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
			requests := make(chan struct{}, 10)
			agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(c.delay) // It is what the test is about.
				fmt.Fprintf(w, `{"group":"ledger","leading":true,"term":7,"token":7340042%s}`, c.remaining)
				select {
				case requests <- struct{}{}:
				default:
				}
			}))
			defer agent.Close()
			guard := exec.CommandContext(t.Context(), "sh", "shell/guard.sh", "ledger")
			guard.Env = append(guard.Environ(), "CONCLAVE_AGENT="+agent.URL)
			output, err := guard.StdoutPipe()
			must.Succeed(t, err)
			must.Succeed(t, guard.Start())
			lines := bufio.NewReader(output)
			if c.works {
				line, err := lines.ReadString('\n') // It waits for a response in time.
				must.Succeed(t, err)
				if line != "works with token 7340042\n" {
					t.Errorf("got %q, want that the script works", line)
				}
			} else {
				for range 10 {
					<-requests
				}
			}
			must.Succeed(t, guard.Process.Kill())
			if rest, err := io.ReadAll(lines); !c.works && (err != nil || len(rest) > 0) {
				t.Errorf("got %q, %v, want that the script doesn't work", rest, err)
			}
			_ = guard.Wait() // It was killed.
		})
	}
}
