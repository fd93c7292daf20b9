package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/examples/internal/ledger"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/safety"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// workload is an example that runs as three processes with three agents, and a ledger.
type workload struct {
	*agentcluster.Cluster

	t      *testing.T
	binary string
	// processes are by the names of their agents.
	processes map[string]*runningProgram
	// ledgerURL is the URL of the ledger, and ledger its process, unless a test double takes its place.
	ledgerURL string
	ledger    *runningProgram
}

const (
	workloadPort = "7601"
	ledgerPort   = "7602"
	// waitMax limits waits. Only failing tests wait so long: on a busy machine, agents may
	// suspect each other several times before a fault is over.
	waitMax = 5 * time.Minute
)

// startWorkload starts an example. Its processes write to the ledger at this URL, or to one
// of their own if it is empty.
func startWorkload(t *testing.T, binary, ledgerURL string) *workload {
	t.Helper()
	w := &workload{t: t, binary: binary, ledgerURL: ledgerURL, processes: map[string]*runningProgram{}}
	w.Cluster = agentcluster.Start(t, agentcluster.Options{Agents: 3, Group: agentcluster.Group{
		Name:       filepath.Base(binary),
		Preemption: agentcluster.Preemption{Policy: "WhenStable", StableMillis: new(int32(1000))},
		Timing:     agentcluster.Timing{DrainMillis: new(int32(300))},
	}})
	var peers []string
	for _, name := range w.Names() {
		host := w.Agent(name).Host
		peers = append(peers, name+"="+net.JoinHostPort(host, workloadPort))
		must.Succeed(t, w.WriteConfig(name, func(file *agentcluster.File) {
			// The agent notices by the probe that the process is paused.
			file.Groups[0].Application = agentcluster.Application{Session: "Required", Probe: &agentcluster.Probe{
				URL: "http://" + net.JoinHostPort(host, workloadPort) + "/healthz", PeriodMillis: 200,
				TimeoutMillis: 500, Failures: 2,
			}}
		}))
	}
	if w.ledgerURL == "" {
		address := net.JoinHostPort(w.Agent("a").Host, ledgerPort)
		w.ledgerURL = "http://" + address
		w.ledger = newProgram(t, "ledger", binary, "ledger", "--listen", address, "--file",
			filepath.Join(t.TempDir(), "ledger"))
		w.ledger.start()
	}
	must.Succeed(t, w.Start())
	for _, name := range w.Names() {
		p := newProgram(t, name, binary, "--self", name, "--peers", strings.Join(peers, ","), "--ledger", w.ledgerURL,
			"--listen", net.JoinHostPort(w.Agent(name).Host, workloadPort))
		p.environment = []string{"CONCLAVE_AGENT=http://" + w.Agent(name).API}
		w.processes[name] = p
		p.start()
	}
	return w
}

// buildWorkloads builds all workloads into a folder.
func buildWorkloads(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	arguments := []string{"build", "-o", folder}
	for name := range workloads {
		must.Succeed(t, program.DependOnProgram(t.Context(), "..", "./examples/"+name))
		arguments = append(arguments, "./"+name)
	}
	if output, err := exec.CommandContext(t.Context(), "go", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return folder
}

// awaitCoordinator waits until these agents agree on a coordinator.
func (w *workload) awaitCoordinator(names ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitMax)
	defer cancel()
	coordinator, err := w.AwaitCoordinator(ctx, names...)
	must.Succeed(w.t, err)
	return coordinator
}

// verdict returns the verdict of the ledger.
func (w *workload) verdict(ctx context.Context) (v ledger.Verdict, err error) {
	ctx, cancel := context.WithTimeout(ctx, testwait.Limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.ledgerURL+"/invariant", nil)
	if err != nil {
		return v, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return v, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&v); err != nil {
		return v, err
	}
	if v.OK != (response.StatusCode == http.StatusOK) {
		return v, fmt.Errorf("got status %s for %+v", response.Status, v)
	}
	return v, nil
}

// checkInvariant fails the test if the invariant is violated. It waits for a ledger that was just started.
func (w *workload) checkInvariant(ctx context.Context) (v ledger.Verdict) {
	w.t.Helper()
	testwait.NoError(w.t, func() (err error) {
		v, err = w.verdict(ctx)
		return err
	})
	if !v.OK {
		w.t.Fatal(safety.Violated, v.String())
	}
	return v
}

// awaitWrites waits until each of the resources has had so many more writes.
func (w *workload) awaitWrites(more uint64, resources ...string) {
	w.t.Helper()
	before := w.checkInvariant(w.t.Context())
	ctx, cancel := context.WithTimeout(w.t.Context(), waitMax)
	defer cancel()
	must.Succeed(w.t, agentcluster.Await(ctx, func(ctx context.Context) error {
		now := w.checkInvariant(ctx)
		for _, resource := range resources {
			if now.Writes[resource] < before.Writes[resource]+more {
				return fmt.Errorf("got %d writes to %s, want %d more than %d", now.Writes[resource], resource,
					more, before.Writes[resource])
			}
		}
		return nil
	}))
}

// runningProgram is a program that can be killed, paused and started again.
type runningProgram struct {
	t           *testing.T
	name        string
	arguments   []string
	environment []string
	output      string
	command     *exec.Cmd
}

func newProgram(t *testing.T, name string, arguments ...string) *runningProgram {
	t.Helper()
	p := &runningProgram{t: t, name: name, arguments: arguments, output: filepath.Join(t.TempDir(), "output")}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			const end = 2000
			text, _ := os.ReadFile(p.output)
			t.Logf("---- end of the output of %s\n%s", name, text[max(0, len(text)-end):])
		}
	})
	return p
}

func (p *runningProgram) start() {
	p.t.Helper()
	output, err := os.OpenFile(p.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must.Succeed(p.t, err)
	defer output.Close()
	p.command = exec.Command(p.arguments[0], p.arguments[1:]...)
	p.command.Env = append(os.Environ(), p.environment...)
	p.command.Stdout, p.command.Stderr = output, output
	// If the test is killed, so is the program.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(p.t, p.command.Start())
}

// kill kills the program, also while it is paused, and waits until it has ended.
func (p *runningProgram) kill() {
	if p.command == nil {
		return
	}
	_ = p.command.Process.Kill() // It may have ended.
	err := p.command.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() >= 0 {
		p.t.Errorf("%s ended by itself: %v", p.name, err)
	}
	p.command = nil
}

func (p *runningProgram) signal(signal syscall.Signal) {
	p.t.Helper()
	must.Succeed(p.t, p.command.Process.Signal(signal))
}

func (p *runningProgram) text() string {
	p.t.Helper()
	text := must.ReadFile(p.t, p.output)
	return string(text)
}

// lateWrites is a server in front of a ledger. It delays one write of a resource until
// a process has written under a later right, like a network that delays a packet.
type lateWrites struct {
	ledger   http.Handler
	resource string

	mu sync.Mutex
	// late is the delayed entry, and arrived is the status of the response to it.
	late    *ledger.Entry
	arrived int
	// answered is closed when there is a response, and answer is its body.
	answered chan struct{}
	answer   []byte
}

func (l *lateWrites) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		l.ledger.ServeHTTP(w, r)
		return
	}
	var e ledger.Entry
	body := new(bytes.Buffer)
	if _, err := body.ReadFrom(r.Body); err != nil || json.Unmarshal(body.Bytes(), &e) != nil {
		http.Error(w, "invalid entry", http.StatusBadRequest)
		return
	}
	const early = 10 // The first write is nothing special.
	if e.Resource == l.resource && !e.Claim && e.Seq > early && l.delay(&e) {
		select {
		case <-l.answered:
			w.WriteHeader(l.status())
			_, _ = w.Write(l.answer) // The client may have given up.
		case <-r.Context().Done():
		}
		return
	}
	l.send(w, body.Bytes())
	l.mu.Lock()
	defer l.mu.Unlock()
	late := l.late
	if late == nil || l.arrived != 0 || e.Claim || e.Resource != late.Resource {
		return
	}
	if e.Token > late.Token || e.Token == late.Token && e.Grant > late.Grant {
		text, _ := json.Marshal(late)
		recorder := httptest.NewRecorder()
		l.send(recorder, text)
		l.arrived, l.answer = recorder.Code, recorder.Body.Bytes()
		close(l.answered)
	}
}

// delay reports whether an entry is delayed: the first one, and its repetitions.
func (l *lateWrites) delay(e *ledger.Entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late == nil {
		l.late = e
	}
	return *l.late == *e
}

func (l *lateWrites) send(w http.ResponseWriter, body []byte) {
	request := httptest.NewRequest(http.MethodPost, "/ledger", bytes.NewReader(body))
	l.ledger.ServeHTTP(w, request)
}

// checkDelayed returns an error until a write is delayed.
func (l *lateWrites) checkDelayed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late == nil {
		return errors.New("no write is delayed")
	}
	return nil
}

// status returns the status of the response to the delayed write, or 0.
func (l *lateWrites) status() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrived
}

// openLedger returns a ledger. Without the fencing check, it stores what it gets, as most devices do.
func openLedger(t *testing.T, fenced bool) *ledger.Server {
	t.Helper()
	server, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, server.Close()) })
	server.Unfenced = !fenced
	return server
}

// serveInTest serves on a free port until the test ends.
func serveInTest(t *testing.T, handler http.Handler) (url string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}
