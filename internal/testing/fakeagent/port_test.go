package fakeagent_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

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
		agent, err := fakeagent.New(fakeagent.Identity{Namespace: "bank", Pod: fmt.Sprint("ledger-", n), Groups: []string{"ledger"}, Address: addressOf(n), Port: port}, factory)
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
