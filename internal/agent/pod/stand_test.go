package pod

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/conclave-dev/conclave/internal/control"
	"github.com/conclave-dev/conclave/internal/identity"
)

// cluster is what pods have around them: an identity service, and an operator.
type cluster struct {
	t         *testing.T
	authority *identity.Authority
	ca        identity.Pair
	url       string
	operator  *identity.Files
	net       byte
	pods      map[string]*guest

	mu sync.Mutex
	// valid is how long certificates last; refusal is the answer to whoever asks for
	// one, if it isn't "".
	valid     time.Duration
	refusal   string
	documents []control.Document
	tokens    []string
}

// nets gives each test addresses of its own.
var nets atomic.Int32

func found(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, valid: time.Hour, pods: map[string]*guest{}, net: byte(nets.Add(1))}
	var err error
	if c.authority, c.ca, err = identity.NewAuthority("test", 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.url = "https://" + listener.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(c.enrol), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go func() {
		_ = server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{c.serving()}, MinVersion: tls.VersionTLS13}))
	}()
	t.Cleanup(func() { server.Close() })
	c.operator = c.certificate(control.Operator)
	return c
}

// serving is the certificate of the identity service.
func (c *cluster) serving() tls.Certificate {
	c.t.Helper()
	ca, err := tls.X509KeyPair(c.ca.Cert, c.ca.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		c.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// certificate is one for these names, with its files.
func (c *cluster) certificate(names ...identity.Name) *identity.Files {
	c.t.Helper()
	pair, err := c.authority.Issue(names, time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.files(pair)
}

// files are those of a certificate, which trust this cluster's authority and others.
func (c *cluster) files(pair identity.Pair, others ...identity.Pair) *identity.Files {
	c.t.Helper()
	dir := c.t.TempDir()
	paths := identity.Paths{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
	trusted := slices.Clone(c.ca.Cert)
	for _, other := range others {
		trusted = append(trusted, other.Cert...)
	}
	for path, text := range map[string][]byte{paths.Cert: pair.Cert, paths.Key: pair.Key, paths.CA: trusted} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	files, err := identity.Open(paths, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return files
}

// enrol answers as the operator's identity service does. A token is NAMESPACE/POD.
func (c *cluster) enrol(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var request control.Enrolment
	err := json.NewDecoder(r.Body).Decode(&request)
	c.tokens = append(c.tokens, request.Token)
	namespace, pod, named := strings.Cut(request.Token, "/")
	block, _ := pem.Decode([]byte(request.Request))
	if err != nil || block == nil || !named || r.URL.Path != control.CertificatesPath || c.refusal != "" {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(control.Refusal{Error: c.refusal})
		return
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || parsed.CheckSignature() != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	names := identity.Names{{Domain: namespace, Group: "ledger", Member: pod}, {Domain: namespace, Group: "audit", Member: pod}}
	cert, err := c.authority.Sign(names, parsed.PublicKey, c.valid)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	answer := control.Enrolled{Certificate: string(cert), Authorities: string(c.ca.Cert)}
	for _, d := range c.documents {
		answer.Documents = append(answer.Documents, string(text(c.t, d)))
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// publish is what enrolments bring from now on.
func (c *cluster) publish(documents ...control.Document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.documents = documents
}

func (c *cluster) refuse(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal = why
}

// text is a document in YAML.
func text(t *testing.T, d control.Document) []byte {
	t.Helper()
	line, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := json.Unmarshal(line, &values); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(whole(values))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// whole makes the numbers of JSON whole ones.
func whole(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = whole(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = whole(inner)
		}
	case float64:
		return int64(v)
	}
	return value
}

// guest is a pod with an agent.
type guest struct {
	*cluster

	name, ip string
	settings Settings
	log      *journal
	// end ends the agent, and waits until it has.
	end func()
}

// journal is a log that a test can read.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) count(part string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), part)
}

// add makes a pod whose agent doesn't run yet.
func (c *cluster) add(name string) *guest {
	c.t.Helper()
	g := &guest{cluster: c, name: name, ip: fmt.Sprintf("127.%d.%d.%d", 64+byte(os.Getpid()%64), c.net, len(c.pods)+1), log: &journal{}, end: func() {}}
	dir := c.t.TempDir()
	variables := map[string]string{
		"POD_NAME": name, "POD_NAMESPACE": "bank", "POD_IP": g.ip, "CONCLAVE_GROUPS": "ledger, audit", "CONCLAVE_IDENTITY": c.url,
		"CONCLAVE_CA": string(c.ca.Cert),
	}
	s, err := FromEnvironment(func(key string) string { return variables[key] })
	if err != nil {
		c.t.Fatal(err)
	}
	s.Mounted, s.State, s.API = filepath.Join(dir, "mounted"), filepath.Join(dir, "state"), net.JoinHostPort(g.ip, "7374")
	g.settings = s
	g.mount(map[string]string{"token": "bank/" + name})
	c.pods[name] = g
	c.t.Cleanup(func() { g.end() })
	return g
}

// mount puts files into the pod as kubelet does: all at once, by a link.
func (g *guest) mount(files map[string]string) {
	g.t.Helper()
	folder := fmt.Sprintf("..%d", time.Now().UnixNano())
	check := func(err error) {
		if err != nil {
			g.t.Fatal(err)
		}
	}
	for path, text := range files {
		full := filepath.Join(g.settings.Mounted, folder, path)
		check(os.MkdirAll(filepath.Dir(full), 0o755))
		check(os.WriteFile(full, []byte(text), 0o600))
		top, _, _ := strings.Cut(path, "/")
		if link := filepath.Join(g.settings.Mounted, top); !exists(link) {
			check(os.Symlink(filepath.Join("..data", top), link))
		}
	}
	fresh := filepath.Join(g.settings.Mounted, "..data_tmp")
	check(os.Symlink(folder, fresh))
	check(os.Rename(fresh, filepath.Join(g.settings.Mounted, "..data")))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// start runs the agent.
func (g *guest) start() *guest {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, g.settings, slog.New(slog.NewTextHandler(io.MultiWriter(g.log, g.t.Output()), nil)))
	}()
	g.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			g.t.Errorf("the agent of %s: %v", g.name, err)
		}
	})
	return g
}

// operate is a client that shows a certificate, or none.
func (g *guest) operate(files *identity.Files) *http.Client {
	secured := &tls.Config{InsecureSkipVerify: true}
	if files != nil {
		secured = files.Client()
	}
	transport := &http.Transport{TLSClientConfig: secured}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func (g *guest) at(path string) string { return "https://" + g.settings.Operator + path }

// call asks the agent as somebody, and returns the status and the body.
func (g *guest) call(as *identity.Files, method, path, body string) (int, string) {
	g.t.Helper()
	request, err := http.NewRequestWithContext(g.t.Context(), method, g.at(path), strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	response, err := g.operate(as).Do(request)
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

// push has the operator push a document, which must be taken.
func (g *guest) push(d control.Document) {
	g.t.Helper()
	if status, body := g.call(g.operator, http.MethodPut, control.GroupPath(d.Group.Name), string(text(g.t, d))); status != http.StatusNoContent {
		g.t.Fatalf("%s answers a document with %d: %s", g.name, status, body)
	}
}

// pushAll pushes a document to all pods at once, and waits until it was taken.
func (c *cluster) pushAll(d control.Document) (wait func()) {
	body := string(text(c.t, d))
	var pushing sync.WaitGroup
	for _, g := range c.pods {
		pushing.Go(func() {
			if status, body := g.call(g.operator, http.MethodPut, control.GroupPath(d.Group.Name), body); status != http.StatusNoContent {
				g.t.Errorf("%s answers a document with %d: %s", g.name, status, body)
			}
		})
	}
	return pushing.Wait
}

// ask asks the local API.
func (g *guest) ask(path string) (int, string) {
	g.t.Helper()
	response, err := http.Get("http://" + g.settings.API + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(text))
}

// eventually waits for something that nobody tells of.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came true: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// stream is the stream of reports of one agent.
type stream struct {
	t      *testing.T
	name   string
	events chan event
	close  func()
}

type event struct{ kind, data string }

// watch opens the stream, when that is possible.
func (g *guest) watch() *stream {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	s := &stream{t: g.t, name: g.name, events: make(chan event, 4096), close: cancel}
	var response *http.Response
	eventually(g.t, g.name+" opens a stream", func() bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.at(control.ReportsPath), nil)
		if err != nil {
			g.t.Fatal(err)
		}
		client := g.operate(g.operator)
		client.Timeout = 0
		response, err = client.Do(request) //nolint:bodyclose // It is read, and closed, below.
		return err == nil
	})
	if response.StatusCode != http.StatusOK {
		g.t.Fatalf("%s answers %s", g.name, response.Status)
	}
	g.t.Cleanup(cancel)
	go func() {
		defer close(s.events)
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		var e event
		for lines.Scan() {
			if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				e.kind = kind
			} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				e.data = data
				s.events <- e
			}
		}
	}()
	return s
}

// next is the next event.
func (s *stream) next() event {
	s.t.Helper()
	select {
	case e, ok := <-s.events:
		if !ok {
			s.t.Fatalf("the stream of %s has ended", s.name)
		}
		return e
	case <-time.After(30 * time.Second):
		s.t.Fatalf("%s says nothing", s.name)
	}
	return event{}
}

// left waits until a group is left, and says which.
func (s *stream) left() string {
	s.t.Helper()
	for {
		if e := s.next(); e.kind == control.EventLeft {
			return e.data
		}
	}
}

// await waits for a report.
func (s *stream) await(what string, wanted func(control.Report) bool) control.Report {
	s.t.Helper()
	var last string
	for begun := time.Now(); time.Since(begun) < 30*time.Second; {
		e := s.next()
		if e.kind != control.EventGroup {
			continue
		}
		last = e.data
		if r := report(s.t, e); wanted(r) {
			return r
		}
	}
	s.t.Fatalf("%s never says that %s; it says %s", s.name, what, last)
	return control.Report{}
}

func report(t *testing.T, e event) control.Report {
	t.Helper()
	var r control.Report
	decoder := json.NewDecoder(strings.NewReader(e.data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		t.Fatalf("%s: %v", e.data, err)
	}
	return r
}

func leads(name string) func(control.Report) bool {
	return func(r control.Report) bool { return r.Coordinator == name }
}

// document is the first list of group ledger, with these members in ascending
// order of their priority.
func (c *cluster) document(revision int64, names ...string) control.Document {
	d := control.Document{UID: "uid-1", Generation: 1, Revision: revision, Group: control.Group{
		Name: "ledger", Algorithm: "StatusTable", Safety: control.Safety{Mode: "Majority", LeaseMillis: 500},
		Preemption: control.Preemption{Policy: "Always"}, Timing: control.Timing{HeartbeatMillis: 100},
		Application: control.Application{Session: "Optional"}, Version: 1, Members: c.members(names...),
	}}
	return d
}

func (c *cluster) members(names ...string) []control.Member {
	var members []control.Member
	for i, name := range names {
		m := control.Member{Name: name, Priority: uint32(10 * (i + 1))}
		if pod := c.pods[name]; pod != nil {
			m.Address = pod.settings.Peers
		}
		members = append(members, m)
	}
	return slices.Clip(members)
}
