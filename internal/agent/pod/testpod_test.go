package pod

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// testPod is a pod with an agent.
type testPod struct {
	*cluster

	name, ip string
	settings Settings
	// identity is that of the state directory.
	identity string
	log      *testwait.Log
	// end stops the agent and waits until it has ended.
	end func()
}

// add adds a pod whose agent isn't running yet.
func (c *cluster) add(name string) *testPod {
	c.t.Helper()
	g := &testPod{cluster: c, name: name, ip: fmt.Sprintf("127.%d.%d.%d", 64+byte(os.Getpid()%64), c.network,
		len(c.pods)+1), log: &testwait.Log{}, end: func() {}}
	dir := c.t.TempDir()
	variables := map[string]string{
		"POD_NAME": name, "POD_NAMESPACE": "bank", "POD_IP": g.ip, "CONCLAVE_GROUPS": "ledger, audit",
		"CONCLAVE_IDENTITY": c.url,
		"CONCLAVE_CA":       string(c.ca.Cert),
	}
	s, err := FromEnvironment(func(key string) string { return variables[key] })
	must.Succeed(c.t, err)
	s.MountDir, s.StateDir, s.API = filepath.Join(dir, "mounted"), filepath.Join(dir, "state"),
		net.JoinHostPort(g.ip, "7374")
	g.settings = s
	g.openState(func(s *state.Store) error {
		g.identity = memberlist.FormatIdentity(uint64(s.Identity()))
		return nil
	})
	g.mount(map[string]string{"token": "bank/" + name})
	c.pods[name] = g
	c.t.Cleanup(func() { g.end() })
	return g
}

// loadState returns the stored state of group ledger. The agent must have ended.
func (g *testPod) loadState() (stored state.Record) {
	g.t.Helper()
	g.openState(func(s *state.Store) (err error) {
		stored, err = s.Load("ledger")
		return err
	})
	return stored
}

func (g *testPod) saveState(next state.Record) {
	g.t.Helper()
	g.openState(func(s *state.Store) error { return s.Save("ledger", next) })
}

func (g *testPod) openState(use func(*state.Store) error) {
	g.t.Helper()
	store, err := state.Open(g.settings.StateDir)
	if err == nil {
		err = errors.Join(use(store), store.Close())
	}
	must.Succeed(g.t, err)
}

// mount replaces the mounted files as kubelet does: all at once, by a symbolic link.
func (g *testPod) mount(files map[string]string) {
	g.t.Helper()
	version := fmt.Sprintf("..%d", time.Now().UnixNano())
	check := func(err error) {
		must.Succeed(g.t, err)
	}
	for path, text := range files {
		full := filepath.Join(g.settings.MountDir, version, path)
		check(os.MkdirAll(filepath.Dir(full), 0o755))
		check(os.WriteFile(full, []byte(text), 0o600))
		top, _, _ := strings.Cut(path, "/")
		if link := filepath.Join(g.settings.MountDir, top); !exists(link) {
			check(os.Symlink(filepath.Join("..data", top), link))
		}
	}
	fresh := filepath.Join(g.settings.MountDir, "..data_tmp")
	check(os.Symlink(version, fresh))
	check(os.Rename(fresh, filepath.Join(g.settings.MountDir, "..data")))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// start runs the agent.
func (g *testPod) start() *testPod {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, g.settings, slog.New(slog.NewTextHandler(io.MultiWriter(g.log, g.t.Output()), nil)))
	}()
	g.end = sync.OnceFunc(func() {
		cancel()
		expect.Succeedf(g.t, <-ended, "agent of %s", g.name)
	})
	return g
}

// httpClient returns a client with a certificate, or without one.
func (g *testPod) httpClient(files *identity.Files) *http.Client {
	secured := &tls.Config{InsecureSkipVerify: true}
	if files != nil {
		secured = files.Client()
	}
	transport := &http.Transport{TLSClientConfig: secured}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func (g *testPod) operatorURL(path string) string { return "https://" + g.settings.Operator + path }

// callOperatorAPI sends a request with a certificate, and returns the status and the body.
func (g *testPod) callOperatorAPI(as *identity.Files, method, path, body string) (int, string) {
	g.t.Helper()
	request, err := http.NewRequestWithContext(g.t.Context(), method, g.operatorURL(path), strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	response, err := g.httpClient(as).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, strings.TrimSpace(string(text))
}

// scrape reads the metrics as Prometheus does: it verifies the certificate of the agent by the
// host name that its configuration has. It returns 0 if there is no connection.
func (g *testPod) scrape(as *identity.Files, host string) int {
	g.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(g.ca.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: host,
		GetClientCertificate: as.Client().GetClientCertificate,
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.operatorURL("/metrics"), nil)
	must.Succeed(g.t, err)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close() // Only the status matters.
	return response.StatusCode
}

// push pushes a document, which the agent must apply.
func (g *testPod) push(d control.Document) {
	g.t.Helper()
	if status, body := g.callOperatorAPI(g.operator, http.MethodPut, control.GroupPath(d.Group.Name),
		encode(g.t, d)); status != http.StatusNoContent {
		g.t.Fatalf("%s: got %d for a document: %s", g.name, status, body)
	}
}

// pushAll pushes a document to all pods concurrently. wait waits for the responses.
func (c *cluster) pushAll(d control.Document) (wait func()) {
	body := encode(c.t, d)
	var pushing sync.WaitGroup
	for _, g := range c.pods {
		pushing.Go(func() {
			if status, body := g.callOperatorAPI(g.operator, http.MethodPut, control.GroupPath(d.Group.Name),
				body); status != http.StatusNoContent {
				g.t.Errorf("%s: got %d for a document: %s", g.name, status, body)
			}
		})
	}
	return pushing.Wait
}

// wantStatus returns a function that checks an answer.
func wantStatus(t *testing.T, what string, want int) func(status int, body string) {
	t.Helper()
	return func(status int, body string) {
		t.Helper()
		expect.Equalf(t, status, want, "%s: status, with %s", what, body)
	}
}

// callLocalAPI sends a GET request to the local API.
func (g *testPod) callLocalAPI(path string) (int, string) {
	g.t.Helper()
	response, err := http.Get("http://" + g.settings.API + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must.Succeed(g.t, err)
	return response.StatusCode, strings.TrimSpace(string(text))
}

func TestMain(m *testing.M) { os.Exit(testwait.Main(m, 8)) }
