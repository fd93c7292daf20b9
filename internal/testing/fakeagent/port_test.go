package fakeagent_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// TestPort: agents with different addresses share a port, and each gets the connections to its
// own address. The handshake shows which agent it is.
func TestPort(t *testing.T) {
	factory, err := fakeagent.NewCertificateFactory()
	if err != nil {
		t.Fatal(err)
	}
	port, err := fakeagent.ListenPort(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	addressOf := func(n int) string { return fmt.Sprintf("127.78.0.%d:%d", n, port.Number()) }
	var agents []*fakeagent.Agent
	for n := range 3 {
		agent, err := fakeagent.New(fakeagent.Identity{Namespace: "bank", Pod: fmt.Sprint("ledger-", n), Groups: []string{"ledger"}, Address: addressOf(n), Port: port}, factory)
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		agents = append(agents, agent)
	}
	pair, err := factory.Authority.Issue(identity.Names{{Domain: "bank", Group: "ledger", Member: "ledger-9"}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	held, err := identity.NewInMemory(pair, factory.Authorities)
	if err != nil {
		t.Fatal(err)
	}
	connect := func(n int) error {
		name := identity.Name{Domain: "bank", Group: "ledger", Member: fmt.Sprint("ledger-", n)}
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", addressOf(n), held.Client(name))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	for n := range agents {
		if err := connect(n); err != nil {
			t.Errorf("ledger-%d: %v", n, err)
		}
	}
	if err := agents[1].Run(t.Context()); err == nil {
		t.Error("got a second agent with the same address, want an error")
	}
	if err := agents[1].Stop(); err != nil {
		t.Fatal(err)
	}
	if err := connect(1); err == nil {
		t.Error("connected to an agent that has stopped, want an error")
	}
	if err := agents[1].Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := connect(1); err != nil {
		t.Errorf("ledger-1 runs again: %v", err)
	}
}
