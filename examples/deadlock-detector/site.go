package main

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/examples/internal/ledger"
	"github.com/conclave-dev/conclave/examples/internal/workload"
)

// site is the side of a process that owns a resource and grants its lock. It knows who
// waits for whom here, and nothing about other sites.
type site struct {
	resource string
	// life is later than those of earlier processes of this site. It takes the place of the
	// coordinator's token, because no coordinator grants this lock.
	life uint64

	mu     sync.Mutex
	grants uint64
	// queue are the requests: the first one holds the lock, and the others wait for it.
	queue []*request
}

type request struct {
	attempt

	granted chan ledger.Entry
}

func newSite(p *workload.Process) *site {
	return &site{resource: "site/" + p.Self, life: uint64(time.Now().UnixMicro())}
}

// serveLock grants the lock, and keeps it until the connection ends.
func (s *site) serveLock(w http.ResponseWriter, r *http.Request) {
	q := &request{granted: make(chan ledger.Entry, 1)}
	if !workload.Decode(w, r, &q.attempt) {
		return
	}
	s.add(q)
	defer s.remove(q)
	select {
	case right := <-q.granted:
		workload.Respond(w, right)
		if http.NewResponseController(w).Flush() == nil {
			<-r.Context().Done()
		}
	case <-r.Context().Done():
	}
}

func (s *site) add(q *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, q)
	if len(s.queue) == 1 {
		s.grantFirst()
	}
}

// remove ends a request. If it held the lock, the next one gets it.
func (s *site) remove(q *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.queue, q)
	s.queue = slices.Delete(s.queue, at, at+1)
	if at == 0 && len(s.queue) > 0 {
		s.grantFirst()
	}
}

func (s *site) grantFirst() {
	s.grants++
	s.queue[0].granted <- ledger.Entry{Resource: s.resource, Token: s.life, Grant: s.grants}
}

// edges returns the local wait-for graph.
func (s *site) edges() []edge {
	s.mu.Lock()
	defer s.mu.Unlock()
	edges := []edge{}
	for i := 1; i < len(s.queue); i++ {
		edges = append(edges, edge{s.queue[i].attempt, s.queue[0].attempt})
	}
	return edges
}
