package transport

import (
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// recordedStream records the size of each write.
type recordedStream struct {
	net.Conn

	mu     sync.Mutex
	writes []int
}

func (s *recordedStream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, len(b))
	return len(b), nil
}

// take returns the sizes of the writes since the last call.
func (s *recordedStream) take() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := s.writes
	s.writes = nil
	return writes
}

// TestFramesThatMayWaitAreWrittenTogether: the groups of an agent send their heartbeats
// from goroutines that become ready at the same time. The scheduler may interrupt them, so
// the test tries again until it doesn't.
func TestFramesThatMayWaitAreWrittenTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as in an agent
	near, far := net.Pipe()
	defer far.Close()
	stream := &recordedStream{Conn: near}
	c := newConn(&Transport{}, near, stream, nil, &wire.Hello{Name: "b", Life: 1}, credentials{}, "")
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	const groups = 20
	testwait.Until(t, "all frames are written in one call", func() bool {
		var sent sync.WaitGroup
		for range groups {
			sent.Go(func() { c.send(Outgoing{Frame: []byte{1}, MayWait: true}) })
		}
		sent.Wait()
		total, together := 0, false
		testwait.Until(t, "all frames are written", func() bool {
			for _, size := range stream.take() {
				total += size
				together = together || size == groups
			}
			return total == groups
		})
		return together
	})
	c.close()
	<-written
}
