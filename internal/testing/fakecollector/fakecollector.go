// Package fakecollector receives OpenTelemetry traces by OTLP, for the tests of the operator.
package fakecollector

import (
	"context"
	"net"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// Collector is a receiver that runs until the test ends.
type Collector struct {
	collector.UnimplementedTraceServiceServer

	// URL is its address.
	URL string

	received chan *traces.ResourceSpans
	hangs    bool
}

// Start starts a collector.
func Start(t testing.TB) *Collector {
	t.Helper()
	return start(t, false)
}

// StartHanging starts a collector that accepts connections and never responds.
func StartHanging(t testing.TB) *Collector {
	t.Helper()
	return start(t, true)
}

func start(t testing.TB, hangs bool) *Collector {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{URL: "http://" + listener.Addr().String(), received: make(chan *traces.ResourceSpans, 100), hangs: hangs}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }() // It returns when the server is stopped.
	t.Cleanup(server.Stop)
	return c
}

// Export implements the service.
func (c *Collector) Export(ctx context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	if c.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, r := range request.GetResourceSpans() {
		c.received <- r
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Await returns the next trace.
func (c *Collector) Await(t testing.TB) *traces.ResourceSpans {
	t.Helper()
	select {
	case r := <-c.received:
		return r
	case <-time.After(testwait.Limit):
		t.Fatal("timed out waiting for a trace")
		return nil
	}
}
