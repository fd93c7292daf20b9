// Package proxyprotocol tests that a common parser of the PROXY protocol understands what agents send.
package proxyprotocol

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/proxy"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
)

func TestApplicationsSeeClients(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) { checkApplicationSeesClient(t, host) })
	}
}

func checkApplicationSeesClient(t *testing.T, host string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	must.Succeed(t, err)
	defer l.Close()
	port, err := testnet.FreePort()
	must.Succeed(t, err)
	application := netip.MustParseAddrPort(l.Addr().String())
	shared, err := proxy.NewShared(proxy.Limits{Connections: 9, GroupConnections: 9, Waiting: 9, Pipes: 2})
	must.Succeed(t, err)
	defer shared.Close()
	p, err := proxy.Serve(t.Context(), shared, proxy.Service{
		Service: config.Service{
			Ports: []control.ServicePort{{Listen: ":" + strconv.Itoa(port), Port: application.Port()}},
			Wait:  time.Minute, ProxyProtocol: true,
		},
		Coordinator: func() proxy.Coordinator {
			return proxy.Coordinator{Name: "a", Term: 1, Address: application.Addr()}
		},
		Stats: &proxy.Stats{},
	})
	must.Succeed(t, err)
	defer p.Close()
	client, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	must.Succeed(t, err)
	defer client.Close()
	_, err = client.Write([]byte("hello"))
	must.Succeed(t, err)
	c, err := (&proxyproto.Listener{Listener: l}).Accept()
	must.Succeed(t, err)
	defer c.Close()
	got := make([]byte, 5)
	_, err = c.Read(got)
	must.Succeed(t, err)
	expect.Equalf(t, string(got), "hello", "what follows the header")
	expect.Equalf(t, c.RemoteAddr().String(), client.LocalAddr().String(), "client")
	expect.Equalf(t, c.LocalAddr().String(), client.RemoteAddr().String(), "where it connected to")
}
