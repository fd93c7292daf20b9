package transport

import (
	"sync"
	"time"
)

// firstGrace is the age from which a connection is closed the first time because the
// certificate of its peer doesn't name a group. An agent that joins a group gets its new
// certificate within seconds.
const firstGrace = time.Second

// renewals decides when connections are replaced because their peers may have renewed their
// certificates. For each peer, the time between two replacements doubles up to a maximum: a
// peer whose certificate never names the group must not disturb the other groups.
type renewals struct {
	longest time.Duration

	mu    sync.Mutex
	grace map[string]time.Duration // by peer
}

// isDue reports whether a connection of this age must be replaced now. The caller does so.
func (r *renewals) isDue(peer string, age time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	grace, known := r.grace[peer]
	if !known || age > 2*r.longest { // The last problem is long over.
		grace = min(firstGrace, r.longest)
	}
	if age <= grace {
		return false
	}
	if r.grace == nil {
		r.grace = map[string]time.Duration{}
	}
	r.grace[peer] = min(2*grace, r.longest)
	return true
}

// forget removes a peer that has left.
func (r *renewals) forget(peer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.grace, peer)
}
