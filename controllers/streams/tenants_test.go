package streams_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/controllers/streams"
)

// silentConn never shakes hands, and counts when the operator gives up.
type silentConn struct {
	net.Conn
	abandoned *atomic.Int32
}

func (c silentConn) Close() error {
	c.abandoned.Add(1)
	return c.Conn.Close()
}

// The pods of a namespace accept connections, and never shake hands. The operator connects to an
// agent of another namespace before it has given up any of them.
func TestSilentAgentsDelayOnlyTheirNamespace(t *testing.T) {
	const silent = 200
	var dialed, abandoned atomic.Int32
	h := &harness{certificates: newCertificates(t)}
	h.start(t, streams.Options{Credentials: h.certificates, Log: logr.Discard(), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if !strings.HasPrefix(address, "10.9.") {
			return h.network.Dial(ctx, network, address)
		}
		dialed.Add(1)
		conn, agent := net.Pipe()
		t.Cleanup(func() { _ = agent.Close() })
		return silentConn{conn, &abandoned}, nil
	}})
	for i := range silent {
		pod := types.NamespacedName{Namespace: "greedy", Name: fmt.Sprint("greedy-", i)}
		h.Follow(streams.Agent{Pod: pod, UID: types.UID(pod.Name), Address: fmt.Sprintf("10.9.0.%d:7375", i)}, 0)
	}
	h.eventually("all silent agents have been dialed", func() bool { return dialed.Load() >= silent })
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
	if n := abandoned.Load(); n > 0 {
		t.Errorf("got %d silent agents given up before the other one was connected, want 0", n)
	}
}
