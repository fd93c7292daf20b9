package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// BenchmarkProxy measures a connection with a request, a request, and a stream from the application, with and without
// an agent between; and how long a client waits for an application that listens 3 ms after it has become coordinator.
// Client, agent and application share the CPUs of -cpu.
func BenchmarkProxy(b *testing.B) {
	serve := func(handle func(*net.TCPConn)) map[string]control.ServicePort {
		w := newWorld(b, limits, unchanged)
		w.serve(loopback, handle)
		w.set(coordinator(1, loopback))
		direct := control.ServicePort{Listen: fmt.Sprintf("%s:%d", loopback, w.Ports[0].Port)}
		return map[string]control.ServicePort{"agent": w.Ports[0], "direct": direct}
	}
	b.Run("begin", func(b *testing.B) {
		w, term := newWorld(b, limits, unchanged), uint64(0)
		for b.Loop() {
			w.set(Coordinator{})
			c := w.dial()
			term++
			w.set(coordinator(term, loopback))
			time.Sleep(3 * time.Millisecond)
			end := w.serve(loopback, echo)
			exchange(b, c)
			must.Succeed(b, errors.Join(c.Close(), end()))
		}
	})
	echoes, streams, got := serve(echo), serve(send), make([]byte, 1<<16)
	for name := range echoes {
		b.Run("connection/"+name, func(b *testing.B) {
			for b.Loop() {
				c := dial(b, echoes[name])
				exchange(b, c)
				must.Succeed(b, c.Close())
			}
		})
		b.Run("request/"+name, func(b *testing.B) {
			for c := dial(b, echoes[name]); b.Loop(); {
				exchange(b, c)
			}
		})
		b.Run("stream/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(got)))
			for c := dial(b, streams[name]); b.Loop(); {
				_, err := io.ReadFull(c, got)
				must.Succeed(b, err)
			}
		})
	}
}
