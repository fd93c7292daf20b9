package agents

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// verifyInterval is how often Verify connects to an agent again at most. A member that lies about
// others must not keep the operator busy.
const verifyInterval = 15 * time.Second

// Verify checks whether an agent that counts as connected can still be reached: others report that it has crashed. When
// a node is lost, nothing closes its connections, and Streams would notice only after readTimeout. Verify connects
// again: an agent that can be reached remains connected meanwhile, and reports the same.
func (s *Streams) Verify(pod types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stream, now := s.streams[pod], time.Now()
	if stream == nil || !stream.state.Connected || stream.interrupt == nil {
		return
	}
	// The end of a connection that isn't stable yet would be signaled.
	if now.Sub(stream.since) <= stableAfter || now.Sub(stream.verified) < verifyInterval {
		return
	}
	stream.verified = now
	stream.interrupt()
}

// setInterrupt sets the function that ends the wait for the next line.
func (s *stream) setInterrupt(interrupt func()) {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	s.interrupt = interrupt
}
