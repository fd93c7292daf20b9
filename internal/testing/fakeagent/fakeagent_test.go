package fakeagent_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// harness is a fake agent of ledger-1 and a client that calls it.
type harness struct {
	t       *testing.T
	agent   *fakeagent.Agent
	address string
	client  *http.Client
}

func newHarness(t *testing.T, caller identity.Name) harness {
	t.Helper()
	factory, err := fakeagent.NewCertificateFactory()
	must.Succeed(t, err)
	var network fakeagent.Network
	role := fakeagent.Identity{
		Namespace: "bank", Pod: "ledger-1", Groups: []string{"ledger"}, Address: "10.0.0.1:7375", Network: &network,
	}
	agent, err := fakeagent.New(role, factory)
	must.Succeed(t, err)
	must.Succeed(t, agent.Run(t.Context()))
	t.Cleanup(func() { _ = agent.Stop() })
	pair, err := factory.Authority.Issue(identity.Names{caller}, time.Hour)
	must.Succeed(t, err)
	held, err := identity.NewInMemory(pair, factory.Authorities)
	must.Succeed(t, err)
	transport := &http.Transport{DialContext: network.Dial, TLSClientConfig: held.Client(
		identity.Name{Domain: "bank", Group: "ledger", Member: "ledger-1"})}
	t.Cleanup(transport.CloseIdleConnections)
	return harness{t, agent, role.Address, &http.Client{Transport: transport}}
}

// do sends a request and returns the status and the body of the response.
func (s harness) do(method, path string, body any) (int, string) {
	s.t.Helper()
	text, err := json.Marshal(body)
	must.Succeed(s.t, err)
	request, err := http.NewRequestWithContext(s.t.Context(), method, "https://"+s.address+path, bytes.NewReader(text))
	must.Succeed(s.t, err)
	response, err := s.client.Do(request)
	must.Succeed(s.t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	must.Succeed(s.t, err)
	return response.StatusCode, string(answer)
}

func document(revision int64, version uint32) control.Document {
	return control.Document{UID: "u", Generation: 7, Revision: revision, Group: control.Group{
		Name: "ledger", List: memberlist.List{Version: version, Members: []memberlist.Member{
			{Name: "ledger-0", Priority: 1, Address: "127.0.0.1:1"}, {Name: "ledger-1", Priority: 2, Address: "127.0.0.1:2"},
		}},
	}}
}

func TestOlderDocumentIsIgnored(t *testing.T) {
	s := newHarness(t, control.Operator)
	for _, d := range []control.Document{document(10, 2), document(9, 1)} {
		if code, answer := s.do(http.MethodPut, control.GroupPath("ledger"), d); code != http.StatusNoContent {
			t.Fatalf("got %d %s for a document, want 204", code, answer)
		}
	}
	if r, in := s.agent.Report("ledger"); !in || r.Revision != 10 || r.Version != 2 {
		t.Errorf("got report %+v, want the newer document", r)
	}
}

func TestOnlyTheOperatorIsAdmitted(t *testing.T) {
	s := newHarness(t, identity.Name{Domain: "bank", Group: "ledger", Member: "ledger-0"})
	if code, answer := s.do(http.MethodGet, control.ReportsPath, nil); code != http.StatusForbidden ||
		!strings.Contains(answer, "for the operator") {
		t.Errorf("got %d %s for a peer, want 403", code, answer)
	}
}

func TestInvalidCommandsAreRefused(t *testing.T) {
	s := newHarness(t, control.Operator)
	for _, invalid := range []struct {
		method, path string
		body         any
		code         int
		part         string
	}{
		{http.MethodPut, control.GroupPath("audit"), document(1, 1), http.StatusBadRequest, "about the group"},
		{http.MethodPut, control.GroupPath("ledger"), []int{1}, http.StatusBadRequest, "unmarshal"},
		{http.MethodDelete, control.GroupPath("ledger") + "?uid=u", nil, http.StatusNotFound, "isn't a member"},
		{http.MethodPut, control.GroupPath("ledger") +
			control.EligibilityPath, map[string]bool{"eligible": true}, http.StatusNotFound, "isn't a member"},
	} {
		if code, answer := s.do(invalid.method, invalid.path, invalid.body); code != invalid.code ||
			!strings.Contains(answer, invalid.part) {
			t.Errorf("%s %s: got %d %s", invalid.method, invalid.path, code, answer)
		}
	}
}

// TestPort: agents with different addresses share a port, and each gets the connections to its
// own address. The handshake shows which agent it is.
func TestPort(t *testing.T) {
	factory, err := fakeagent.NewCertificateFactory()
	must.Succeed(t, err)
	port, err := fakeagent.ListenPort(t.Context(), 0)
	must.Succeed(t, err)
	addressOf := func(n int) string { return fmt.Sprintf("127.78.0.%d:%d", n, port.Number()) }
	var agents []*fakeagent.Agent
	for n := range 3 {
		agent, err := fakeagent.New(fakeagent.Identity{Namespace: "bank", Pod: fmt.Sprint("ledger-",
			n), Groups: []string{"ledger"}, Address: addressOf(n), Port: port}, factory)
		must.Succeed(t, err)
		must.Succeed(t, agent.Run(t.Context()))
		agents = append(agents, agent)
	}
	pair, err := factory.Authority.Issue(identity.Names{{Domain: "bank", Group: "ledger", Member: "ledger-9"}}, time.Hour)
	must.Succeed(t, err)
	held, err := identity.NewInMemory(pair, factory.Authorities)
	must.Succeed(t, err)
	connect := func(n int) error {
		name := identity.Name{Domain: "bank", Group: "ledger", Member: fmt.Sprint("ledger-", n)}
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", addressOf(n), held.Client(name))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	for n := range agents {
		expect.Succeedf(t, connect(n), "ledger-%d", n)
	}
	if err := agents[1].Run(t.Context()); err == nil {
		t.Error("got a second agent with the same address, want an error")
	}
	must.Succeed(t, agents[1].Stop())
	if err := connect(1); err == nil {
		t.Error("connected to an agent that has stopped, want an error")
	}
	must.Succeed(t, agents[1].Run(t.Context()))
	expect.Succeedf(t, connect(1), "ledger-1 runs again")
}
