package pod

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

const (
	operatorNamespace = "conclave-system"
	witnessName       = "conclave-witness-0"
)

// addIn adds a pod of a namespace.
func (c *cluster) addIn(namespace, name string) *testPod {
	c.t.Helper()
	g := c.add(name)
	g.settings.Namespace = namespace
	g.mount(map[string]string{"token": namespace + "/" + name})
	return g
}

// startWitness starts a witness, which forgets a namespace after a grace.
func (c *cluster) startWitness(grace time.Duration) *testPod {
	c.t.Helper()
	w := c.addIn(operatorNamespace, witnessName)
	w.settings.Witness, w.settings.Groups, w.settings.TenantGrace = true, nil, grace
	return w.start()
}

// witnessed returns a document of group ledger of a namespace, with two members and the witness.
func (c *cluster) witnessed(namespace string, revision int64, names ...string) control.Document {
	c.t.Helper()
	d := c.document(revision, append(names, witnessName)...)
	d.UID = "uid-of-" + namespace
	for i := range d.Group.Members {
		m := &d.Group.Members[i]
		m.UID = uidOf(m.Name)
		if m.Name == witnessName {
			m.Priority, m.Identity = 0, c.pods[witnessName].identityIn(namespace)
		}
	}
	return d
}

// identityIn returns the identity of a witness in a namespace, which it reports.
func (g *testPod) identityIn(namespace string) string {
	g.t.Helper()
	s := g.watchPath(control.NamespacePath(namespace) + control.ReportsPath)
	defer s.close()
	for {
		if e := s.next(); e.kind == control.EventCurrent {
			var reported control.Agent
			must.Succeed(g.t, json.Unmarshal([]byte(e.data), &reported))
			return reported.Identity
		}
	}
}

func (g *testPod) pushTo(namespace string, d control.Document) {
	g.t.Helper()
	if status, body := g.callOperatorAPI(g.operator, http.MethodPut, control.NamespacePath(namespace)+
		control.GroupPath(d.Group.Name), encode(g.t, d)); status != http.StatusNoContent {
		g.t.Fatalf("%s: got %d for a document: %s", g.name, status, body)
	}
}

// form starts the members of a group in a namespace, the last of which may be a process of the binary.
func (c *cluster) form(namespace string, names ...string) map[string]*stream {
	c.t.Helper()
	d := c.witnessed(namespace, 1, names...)
	streams := map[string]*stream{}
	for _, name := range names {
		streams[name] = c.pods[name].watch()
		c.pods[name].push(d)
	}
	c.pods[witnessName].pushTo(namespace, d)
	return streams
}

// TestWitnessForgetsNamespaceWithoutGroups, while no operator uses it: the next group there has a new voter.
func TestWitnessForgetsNamespaceWithoutGroups(t *testing.T) {
	c := newCluster(t)
	w := c.startWitness(time.Millisecond)
	path := control.NamespacePath("bank")
	operator := w.watchPath(path + control.ReportsPath)
	before := w.identityIn("bank")
	w.pushTo("bank", c.witnessed("bank", 1, "a", "b"))
	operator.close()
	w.end()
	w.start()
	operator = w.watchPath(path + control.ReportsPath)
	leave := path + control.GroupPath("ledger") + "?uid=uid-of-bank&revision=2"
	status, body := w.callOperatorAPI(w.operator, http.MethodDelete, leave, "")
	expect.Equalf(t, status, http.StatusNoContent, "status of leaving: %s", body)
	expect.Equalf(t, w.identityIn("bank"), before, "identity while an operator is connected")
	operator.close()
	testwait.Until(t, "the state directory is removed", func() bool {
		_, err := os.Stat(filepath.Join(w.settings.StateDir, "namespaces", "bank"))
		return errors.Is(err, os.ErrNotExist)
	})
	expect.Equalf(t, w.identityIn("bank") == before, false, "the identity is that of before")
}

// TestEndOfNamespaceHoldsUpNoOther: it may wait for a disk. It ends neither while it is used, nor twice.
func TestEndOfNamespaceHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	ending, ended := make(chan struct{}, 2), make(chan struct{})
	newTenant := func(end func()) *tenant {
		settings := &Settings{StateDir: t.TempDir()}
		return &tenant{runtime: &runtime{settings: settings, groups: &groupManager{}}, end: end}
	}
	bank := newTenant(func() {
		ending <- struct{}{}
		testwait.Receive(t, "the end of the agent", ended)
	})
	w := &witness{
		runtime: &runtime{settings: &Settings{TenantGrace: time.Hour}, log: slog.New(slog.DiscardHandler)},
		tenants: map[string]*tenant{"bank": bank, "shop": newTenant(nil)},
	}
	w.ended = sync.NewCond(&w.mu)
	use := func(namespace string) <-chan func() {
		used := make(chan func(), 1)
		go func() {
			_, done, _ := w.use(namespace)
			used <- done
		}()
		return used
	}
	done := testwait.Receive(t, "the use of a namespace", use("bank"))
	w.endUnused("bank", bank)
	expect.Lenf(t, ending, 0, "ends while the operator uses it")
	done()
	removed := make(chan struct{})
	go func() {
		w.endUnused("bank", bank)
		close(removed)
	}()
	testwait.Receive(t, "the begin of the end", ending)
	next := use("bank")
	testwait.Receive(t, "the use of another namespace", use("shop"))
	w.endUnused("bank", bank)
	expect.Lenf(t, next, 0, "uses before the end")
	w.mu.Lock()
	w.closed = true // So the next one doesn't begin.
	w.mu.Unlock()
	close(ended)
	testwait.Receive(t, "the end of the namespace", removed)
	testwait.Receive(t, "the next use of the namespace", next)
	_, err := os.Stat(bank.settings.StateDir)
	expect.ErrorIsf(t, err, os.ErrNotExist, "state directory")
	expect.Lenf(t, w.tenants, 1, "namespaces")
}

// flood lets a member of namespace park send to the witness as fast as it can. It gets no more than its rate.
func (c *cluster) flood(w *testPod) {
	c.t.Helper()
	w.pushTo("park", c.witnessed("park", 1, "aa", "bb"))
	names := identity.Names{{Domain: "park", Group: "ledger", Member: "bb"}}
	hostile, err := c.issuer.IssueToPod(names, uidOf("bb"), time.Hour)
	must.Succeed(c.t, err)
	_, domain, conn := w.dialPeers(c.files(hostile), &wire.Hello{Domain: "park", Name: "bb"})
	expect.Equalf(c.t, domain, "park", "domain of the witness for the hostile member")
	long := slices.Repeat([]string{strings.Repeat("n", wire.MaxName)}, wire.MaxMembers)
	frame := wire.Append(nil, wire.Frame{Message: &wire.Message{
		Group: "ledger", Kind: election.Beat, Term: 1 << 17, List: long,
	}})
	begun, sent, ended := time.Now(), atomic.Int64{}, make(chan error, 1)
	go func() {
		for {
			n, err := conn.Write(frame)
			if sent.Add(int64(n)); err != nil {
				ended <- err
				return
			}
		}
	}()
	enough := func() bool { return time.Since(begun) > time.Second && sent.Load() > 1<<20 }
	testwait.Until(c.t, "a second of the flood", enough)
	const buffers, costs = 12 << 20, 512 // of both kernels; see transport.Config.Rate
	expect.AtMostf(c.t, float64(sent.Load()), buffers+witnessRate*costs*time.Since(begun).Seconds(), "bytes of the flood")
	expect.Lenf(c.t, ended, 0, "ends of the flood")
}

// TestWitnessVotesInTwoNamespaces: one process is the third member of two groups of one name in two namespaces, while a
// member of a third one floods it. A member of one is killed, and the other one takes over, with the vote of the
// witness. Nobody in the other group notices. Then the witness restarts, and votes in both groups again.
func TestWitnessVotesInTwoNamespaces(t *testing.T) {
	c := newCluster(t)
	binary := buildAgent(t)
	w := c.startWitness(time.Hour)
	a, b := c.add("a"), c.add("b")
	process := b.run(binary)
	a.start()
	c.addIn("shop", "x").start()
	y := c.addIn("shop", "z").start() // Its name is after that of the witness: both sides dial.
	bank, shop := c.form("bank", "a", "b"), c.form("shop", "x", "z")
	bank["a"].await("b is coordinator", hasCoordinator("b"))
	shop["x"].await("z is coordinator", hasCoordinator("z"))

	c.flood(w)
	must.Succeed(t, process.Process.Kill())
	b.end = func() {} // It has been killed.
	bank["a"].await("a is coordinator with the vote of the witness", hasCoordinator("a"))

	w.end()
	y.end() // The rest is no majority: x leads when the witness is back.
	w.start()
	shop["x"].await("x is coordinator with the vote of the restarted witness", hasCoordinator("x"))
}

// dialPeers connects to the port for peers with a certificate, and sends a Hello. It returns the names in the
// certificate of the other side, the domain in its Hello, "" if it sends none, and the rest of the connection.
func (g *testPod) dialPeers(as *identity.Files, hello *wire.Hello) (names, domain string, rest *bufio.ReadWriter) {
	g.t.Helper()
	conn, err := (&tls.Dialer{Config: as.Client()}).DialContext(g.t.Context(), "tcp", g.settings.Peers)
	must.Succeed(g.t, err)
	g.t.Cleanup(func() { conn.Close() })
	must.Succeed(g.t, conn.SetDeadline(time.Now().Add(testwait.Limit)))
	hello.Protocol, hello.Revision, hello.Life, hello.Port = wire.Protocol, wire.Revision, 1, control.PeerPort
	_, err = conn.Write(wire.Append(nil, wire.Frame{Hello: hello}))
	must.Succeed(g.t, err)
	secured, _ := conn.(*tls.Conn)
	shown, err := identity.PeerNames(secured.ConnectionState())
	must.Succeed(g.t, err)
	rest = bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	size, err := wire.ReadSize(rest, wire.MaxHello)
	if err != nil {
		return shown.String(), "", rest
	}
	body := make([]byte, size)
	_, err = io.ReadFull(rest, body)
	must.Succeed(g.t, err)
	frame, err := wire.Parse(body)
	must.Succeed(g.t, err)
	return shown.String(), frame.Hello.Domain, rest
}

// TestWitnessSeparatesNamespaces: the certificate of the peer selects the namespace, whatever its Hello says. Nobody
// learns of another namespace, and only the operator adds one.
func TestWitnessSeparatesNamespaces(t *testing.T) {
	c := newCluster(t)
	w := c.startWitness(time.Hour)
	client := net.JoinHostPort(w.ip, strconv.Itoa(control.ServicePort1))
	for _, namespace := range []string{"bank", "shop"} {
		d := c.witnessed(namespace, 1, "a", "b")
		d.Group.Service = &control.Service{Ports: []control.ServicePort{{Listen: client, Port: 8080}}}
		w.pushTo(namespace, d)
	}
	if _, err := net.Dial("tcp", client); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a client of the Service got error %v, want none to reach a witness", err)
	}
	of := func(domain, member string) *identity.Files {
		return c.certificate(identity.Name{Domain: domain, Group: "ledger", Member: member})
	}
	for _, test := range []struct {
		as             *identity.Files
		domain, answer string
	}{
		{of("bank", "b"), "bank", "bank"},
		{of("shop", "b"), "bank", "shop"},
		{of("park", "b"), "bank", ""},
		{of("park", "b"), "park", ""},
		{c.certificate(control.Witness(witnessName)), "bank", ""},
		{c.certificate(control.Operator), "bank", ""},
	} {
		names, domain, rest := w.dialPeers(test.as, &wire.Hello{Domain: test.domain, Name: "b"})
		expect.Equalf(t, names, control.Witness(witnessName).String(), "names that %s sees", test.as.Names())
		expect.Equalf(t, domain, test.answer, "domain in the answer to %s for %s", test.as.Names(), test.domain)
		if test.domain != test.answer {
			awaitEnd(t, rest, test.as.Names().String()+" for "+test.domain)
		}
	}
	path := control.NamespacePath("park") + control.ReportsPath
	for _, as := range []*identity.Files{nil, of("park", "b"), c.certificate(control.MetricsReader)} {
		wantStatus(t, "not the operator", http.StatusForbidden)(w.callOperatorAPI(as, http.MethodGet, path, ""))
	}
	status, _ := w.callOperatorAPI(c.operator, http.MethodGet, control.NamespacePath("..%2Fpark")+control.ReportsPath, "")
	expect.Equalf(t, status, http.StatusUnprocessableEntity, "status for a name with a slash")
	namespaces, err := os.ReadDir(filepath.Join(w.settings.StateDir, "namespaces"))
	must.Succeed(t, err)
	expect.Equalf(t, len(namespaces), 2, "namespaces of the witness")
}

// awaitEnd waits until the other side closes a connection.
func awaitEnd(t *testing.T, rest io.Reader, of string) {
	t.Helper()
	if _, err := io.ReadAll(rest); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: got error %v, want the end of the connection", of, err)
	}
}

// TestMembersAcceptOnlyTheirWitness: the certificate of a witness counts only with the UID in the list, and under its
// own name.
func TestMembersAcceptOnlyTheirWitness(t *testing.T) {
	c := newCluster(t)
	w := c.startWitness(time.Hour)
	c.add("a").start()
	x := c.add("x").start()
	c.form("bank", "a", "x")["a"].await("x is coordinator", hasCoordinator("x"))
	w.end() // It would replace the connections.
	issue := func(uid string, name identity.Name) *identity.Files {
		pair, err := c.issuer.IssueToPod(identity.Names{name}, uid, time.Hour)
		must.Succeed(t, err)
		return c.files(pair)
	}
	for _, test := range []struct {
		as   *identity.Files
		name string
	}{
		{issue("former", control.Witness(witnessName)), witnessName},
		{issue("", control.Witness(witnessName)), witnessName},
		{issue(uidOf(witnessName), control.Witness(witnessName)), "a"},
		{issue(uidOf("a"), control.Witness("conclave-witness-1")), "conclave-witness-1"},
		{issue(uidOf(witnessName), identity.Name{Domain: "conclave.dev", Group: "ledger", Member: witnessName}), witnessName},
		{issue(uidOf(witnessName), identity.Name{Domain: "shop", Group: "witness", Member: witnessName}), witnessName},
	} {
		_, _, rest := x.dialPeers(test.as, &wire.Hello{Domain: "bank", Name: test.name})
		awaitEnd(t, rest, test.as.Names().String()+" as "+test.name)
	}
}
