package examples

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/safety"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestLocal runs the script of the README, and kills a process as users do.
func TestLocal(t *testing.T) {
	agentcluster.NeedPartitions(t) // In a network of its own: the script has fixed ports.
	temporary := t.TempDir()
	p := newProgram(t, "local", "./local", "lock-service")
	p.environment = []string{"TMPDIR=" + temporary}
	p.start()
	holds := func() int { return strings.Count(p.text(), "\nholds: ") }
	killed := regexp.MustCompile(`(?m)^c: process (\d+)$`)
	testwait.Until(t, "the invariant holds", func() bool { return holds() > 0 })
	pid, err := strconv.Atoi(killed.FindStringSubmatch(p.text())[1])
	must.Succeed(t, err)
	must.Succeed(t, syscall.Kill(pid, syscall.SIGKILL))
	testwait.Until(t, "the process was started again", func() bool { return len(killed.FindAllString(p.text(), -1)) == 2 })
	before := holds()
	testwait.Until(t, "the invariant still holds", func() bool { return holds() > before })
	if strings.Contains(p.text(), "violated") {
		t.Error(safety.Violated, p.text())
	}

	p.signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- p.command.Wait() }()
	must.Succeed(t, testwait.Receive(t, "the end of the script", done))
	p.command = nil
	left, err := filepath.Glob(filepath.Join(temporary, "*", "*"))
	must.Succeed(t, err)
	for _, match := range killed.FindAllStringSubmatch(p.text(), -1) {
		if pid, _ := strconv.Atoi(match[1]); syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d still runs", pid)
		}
	}
	expect.Lenf(t, left, 0, "files after the end")
}

func TestUsageErrors(t *testing.T) {
	folder := t.TempDir()
	must.Succeed(t, program.DependOnProgram(t.Context(), "..", "./examples/lock-service"))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", folder, "./lock-service")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	const peers = "--peers=a=127.0.0.1:8081,b=127.0.0.1:8082"
	for want, arguments := range map[string][]string{
		"--peers must be a list such as a=127.0.0.1:8081,b=127.0.0.1:8082, got \"\"":                   {},
		"--peers must be a list such as a=127.0.0.1:8081,b=127.0.0.1:8082, got \"a\"":                  {"--peers=a"},
		"--peers must contain this process, c (see --self), got \"a=127.0.0.1:8081,b=127.0.0.1:8082\"": {peers, "--self=c"},
		"got argument \"chek\", want only flags, or one of the commands ledger and check":              {"chek"},
		"check needs the URL of a ledger, such as http://127.0.0.1:8090":                               {"check"},
		"open /none/ledger: no such file or directory": {
			"ledger", "--file=/none/ledger",
		},
		"cannot read the ledger: Get \"http://127.0.0.1:1/ledger\": dial tcp 127.0.0.1:1: connect: connection refused": {
			"check", "http://127.0.0.1:1",
		},
	} {
		output, err := exec.CommandContext(t.Context(), filepath.Join(folder, "lock-service"), arguments...).CombinedOutput()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%q: got error %v, want exit code 1", arguments, err)
		}
		expect.Equalf(t, string(output), "lock-service: "+want+"\n", "%q", arguments)
	}
	if output, err := exec.CommandContext(t.Context(), "./local", "lock").CombinedOutput(); err == nil ||
		!strings.HasPrefix(string(output), "usage: ") {
		t.Errorf("local: got %v, %q, want its usage", err, output)
	}
}

// TestManifestsDifferByNameOnly compares the manifests with the one that test/e2e applies.
func TestManifestsDifferByNameOnly(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text := must.ReadFile(t, filepath.Join(name, "manifest.yaml"))
		_, manifest, _ := strings.Cut(string(text), "\n") // The first line is a comment.
		return manifest
	}
	want := read("lock-service")
	if got := strings.ReplaceAll(read("device-owner"), "device-owner", "lock-service"); got != want {
		t.Errorf("the manifest of device-owner differs from that of lock-service:\n%s", got)
	}
}

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
				expect.Equalf(t, line, "works with token 7340042\n", "the script works")
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
