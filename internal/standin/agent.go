package standin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/conclave-dev/conclave/internal/control"
	"github.com/conclave-dev/conclave/internal/identity"
)

// Call is something that an agent was told.
type Call struct {
	Method, Path, Body string
}

// Agent stands in for the agent of one pod.
type Agent struct {
	Namespace, Pod string
	// Obey is called for each call, and answers with a status; nil: 204.
	Obey func(Call) int

	t       testing.TB
	groups  []string
	network *Network
	ip      string
	files   *identity.Files
	server  *http.Server

	mu      sync.Mutex
	reports map[string]control.Report
	calls   []Call
	readers map[chan string]bool
}

// Network knows where the agents with their pods' addresses really are.
type Network struct {
	mu    sync.Mutex
	where map[string]string
}

// Dial connects with an agent.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	where := n.where[address]
	n.mu.Unlock()
	if where == "" {
		// A port that nobody listens on.
		where = "127.0.0.1:1"
	}
	return (&net.Dialer{}).DialContext(ctx, network, where)
}

// Where is the real address of an agent.
func (n *Network) Where(ip string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.where[net.JoinHostPort(ip, fmt.Sprint(control.OperatorPort))]
}

func (n *Network) at(ip, where string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.where == nil {
		n.where = map[string]string{}
	}
	n.where[net.JoinHostPort(ip, fmt.Sprint(control.OperatorPort))] = where
}

// New makes the agent of a pod in some groups. It doesn't run yet.
func New(t testing.TB, authority *Authority, network *Network, namespace, pod, ip string, groups ...string) *Agent {
	t.Helper()
	var names identity.Names
	for _, group := range groups {
		names = append(names, identity.Name{Domain: namespace, Group: group, Member: pod})
	}
	a := &Agent{
		Namespace: namespace, Pod: pod,
		t: t, groups: groups, network: network, ip: ip, files: authority.files(t, names...),
		reports: map[string]control.Report{}, readers: map[chan string]bool{},
	}
	t.Cleanup(a.Stop)
	return a
}

// Run has it be there.
func (a *Agent) Run() {
	a.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(a.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+control.ReportsPath, a.stream)
	mux.HandleFunc(control.GroupsPath, a.call)
	server := &http.Server{Handler: mux, TLSConfig: a.files.Server(), ErrorLog: log.New(io.Discard, "", 0)}
	a.mu.Lock()
	a.server = server
	a.mu.Unlock()
	go func() { _ = server.Serve(tls.NewListener(listener, server.TLSConfig)) }()
	a.network.at(a.ip, listener.Addr().String())
}

// Speak has it be there, and say to each connection what speak writes, after the
// handshake.
func (a *Agent) Speak(speak func(net.Conn)) {
	a.t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", a.files.Server())
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				speak(conn)
			}()
		}
	}()
	a.network.at(a.ip, listener.Addr().String())
}

// Stop ends it, and its connections.
func (a *Agent) Stop() {
	a.mu.Lock()
	server := a.server
	a.server = nil
	a.mu.Unlock()
	if server != nil {
		a.network.at(a.ip, "")
		_ = server.Close()
	}
}

// Drop has it end the streams that it is heard over.
func (a *Agent) Drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for reader := range a.readers {
		close(reader)
	}
	clear(a.readers)
}

// Say has it report.
func (a *Agent) Say(report control.Report) {
	report.Pod = a.Pod
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reports[report.Group] = report
	a.publish(control.EventGroup, report)
}

// Change has it report something else about a group.
func (a *Agent) Change(group string, change func(*control.Report)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	report := a.reports[group]
	report.Group, report.Pod = group, a.Pod
	change(&report)
	a.reports[group] = report
	a.publish(control.EventGroup, report)
}

// Leave has it say that it left a group.
func (a *Agent) Leave(group string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := control.Left{Group: group, UID: a.reports[group].UID}
	delete(a.reports, group)
	a.publish(control.EventLeft, left)
}

// Report is what it says about a group.
func (a *Agent) Report(group string) (control.Report, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	report, ok := a.reports[group]
	return report, ok
}

// Calls are all that it was told.
func (a *Agent) Calls() []Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// Heard reports whether somebody reads what it says.
func (a *Agent) Heard() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.readers) > 0
}

// publish is called with the lock held.
func (a *Agent) publish(kind string, said any) {
	text := event(kind, said)
	for reader := range a.readers {
		reader <- text
	}
}

func event(kind string, said any) string {
	line, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	return "event: " + kind + "\ndata: " + string(line) + "\n\n"
}

func (a *Agent) stream(w http.ResponseWriter, r *http.Request) {
	// As long as a test can be with what it says before the other side reads.
	reader := make(chan string, 10_000)
	a.mu.Lock()
	for _, group := range slices.Sorted(maps.Keys(a.reports)) {
		reader <- event(control.EventGroup, a.reports[group])
	}
	reader <- event(control.EventCurrent, control.Agent{Pod: a.Pod, Groups: a.groups})
	a.readers[reader] = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.readers, reader)
		a.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		select {
		case <-r.Context().Done():
			return
		case text, ok := <-reader:
			if !ok {
				return
			}
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
			if http.NewResponseController(w).Flush() != nil {
				return
			}
		}
	}
}

func (a *Agent) call(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	path := r.URL.Path
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	said := Call{Method: r.Method, Path: path, Body: strings.TrimSpace(string(body))}
	a.mu.Lock()
	a.calls = append(a.calls, said)
	a.mu.Unlock()
	status := http.StatusNoContent
	if a.Obey != nil {
		status = a.Obey(said)
	}
	w.WriteHeader(status)
}
