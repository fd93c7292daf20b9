// Package examples_test runs each example against real agents, and takes the
// role from it.
package examples_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

const soon = 30 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// built are the programs that are compiled once, by package.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "examples")
	if err != nil {
		return "", err
	}
	for name, from := range map[string]string{"agent": "../cmd/agent", "go": "./go"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), from).CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%w: %s", err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := built(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// port finds one that is free.
func port(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// program is one that runs until the test ends.
type program struct {
	*exec.Cmd

	mu    sync.Mutex
	lines []string
	ended chan struct{}
}

func run(t *testing.T, environment []string, name string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.CommandContext(t.Context(), name, args...), ended: make(chan struct{})}
	p.Env = append(os.Environ(), environment...)
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := p.StdoutPipe()
	must(t, err)
	p.Stderr = p.Stdout
	must(t, p.Start())
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
		_ = p.Wait() // What it ends with is looked at where it matters.
	}()
	t.Cleanup(func() {
		p.kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s: %s", p.Args, strings.Join(p.said(), "\n"))
		}
	})
	return p
}

// kill ends the program and what it has started, as a container's end would.
func (p *program) kill() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) }

func (p *program) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

var works = regexp.MustCompile(`^works with token (\d+)$`)

// token is the last one that it worked with, 0 if it hasn't.
func (p *program) token(t *testing.T) uint64 {
	t.Helper()
	var last uint64
	for _, line := range p.said() {
		if match := works.FindStringSubmatch(line); match != nil {
			token, err := strconv.ParseUint(match[1], 10, 64)
			must(t, err)
			last = token
		}
	}
	return last
}

// agents starts three, and gives the addresses of their local APIs.
func agents(t *testing.T, session string) []string {
	t.Helper()
	dir, err := built()
	must(t, err)
	var members, peers, apis []string
	for i := range 3 {
		peers, apis = append(peers, port(t)), append(apis, port(t))
		members = append(members, fmt.Sprintf(`{name: %c, priority: %d, address: "%s"}`, 'a'+i, 10*(i+1), peers[i]))
	}
	for i := range 3 {
		file := filepath.Join(t.TempDir(), "agent.yaml")
		text := fmt.Sprintf("self: %c\napi: %s\nlisten: %s\ntls: {insecure: true}\ngroups:\n- name: ledger\n"+
			"  preemption: {policy: Never, stableSeconds: 0}\n  application: {session: %s}\n  members: [%s]\n",
			'a'+i, apis[i], peers[i], session, strings.Join(members, ", "))
		must(t, os.WriteFile(file, []byte(text), 0o600))
		run(t, nil, filepath.Join(dir, "agent"), "--config", file)
	}
	return apis
}

func TestExamplesLead(t *testing.T) {
	dir, err := built()
	must(t, err)
	for name, example := range map[string]struct {
		command string
		session string
	}{
		"go":      {filepath.Join(dir, "go"), "Required"},
		"python":  {"python/worker.py", "Required"},
		"session": {"shell/session.sh", "Required"},
		"guard":   {"shell/guard.sh", "Optional"},
	} {
		t.Run(name, func(t *testing.T) {
			available(t, name)
			apis := agents(t, example.session)
			var workers []*program
			for _, api := range apis {
				workers = append(workers, run(t, []string{"CONCLAVE_AGENT=http://" + api}, example.command, "ledger"))
			}
			first, token := leading(t, workers, 0)
			stepDown(t, apis[first])
			second, next := leading(t, workers, token)
			if first == second {
				t.Fatal("it handed over to itself")
			}
			quiet(t, workers[first])
			if example.session != "Required" {
				return
			}
			// It stopped in an orderly way, and the death of the other one brings the next.
			if said := strings.Join(workers[first].said(), "\n"); !strings.Contains(said, "\nstops") {
				t.Fatalf("it didn't stop: %s", said)
			}
			workers[second].kill()
			<-workers[second].ended
			third, _ := leading(t, workers, next)
			must(t, workers[third].Process.Signal(syscall.SIGTERM))
			select {
			case <-workers[third].ended:
			case <-time.After(soon):
				t.Fatal("it doesn't end when it is told to")
			}
			if code := workers[third].ProcessState.ExitCode(); code != 0 {
				t.Fatalf("exit code %d", code)
			}
		})
	}
}

// available skips an example whose interpreter isn't there, except in CI.
func available(t *testing.T, name string) {
	t.Helper()
	needs := map[string]string{"go": "go", "python": "python3", "session": "curl", "guard": "curl"}[name]
	if _, err := exec.LookPath(needs); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must not skip tests: %v", err)
		}
		t.Skip(err)
	}
}

// leading waits for a worker that works with a token above another.
func leading(t *testing.T, workers []*program, above uint64) (worker int, token uint64) {
	t.Helper()
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for i, w := range workers {
			if token := w.token(t); token > above {
				return i, token
			}
		}
	}
	t.Fatalf("nobody works with a token above %d", above)
	return 0, 0
}

// quiet checks that a worker that handed over has said its last: the one that
// leads now says more, and it doesn't.
func quiet(t *testing.T, w *program) {
	t.Helper()
	said := w.said()
	if len(said) == 0 {
		t.Fatal("it said nothing")
	}
	time.Sleep(time.Second) // Five steps: an absence can't be waited for.
	if now := w.said(); len(now) != len(said) {
		t.Fatalf("it went on: %q", now[len(said):])
	}
}

func stepDown(t *testing.T, api string) {
	t.Helper()
	for deadline := time.Now().Add(soon); ; time.Sleep(50 * time.Millisecond) {
		response, err := http.Post("http://"+api+"/v1/groups/ledger/step-down", "", nil)
		must(t, err)
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(response.Status)
		}
	}
}

func TestAgentFile(t *testing.T) {
	if _, err := config.Load("agent.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("agent.yaml.state"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("reading a file must not create another")
	}
}
