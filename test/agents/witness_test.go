package agents

import (
	"runtime"
	"sync"
	"time"
)

// witness measures for how long threads wait for a CPU.
type witness struct {
	done    chan struct{}
	threads sync.WaitGroup
	mutex   sync.Mutex
	longest time.Duration
}

// startWitness starts as many threads as there are agents in a graph.
func startWitness() *witness {
	w := &witness{done: make(chan struct{})}
	for range graphAgents {
		w.threads.Go(w.measure)
	}
	return w
}

// measure measures how late one thread wakes up.
func (w *witness) measure() {
	const interval = 10 * time.Millisecond
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for before := time.Now(); ; {
		select {
		case <-w.done:
			return
		case <-time.After(interval):
		}
		now := time.Now()
		w.mutex.Lock()
		w.longest = max(w.longest, now.Sub(before)-interval)
		w.mutex.Unlock()
		before = now
	}
}

// stop returns the longest wait.
func (w *witness) stop() time.Duration {
	close(w.done)
	w.threads.Wait()
	return w.longest
}
