package transport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// absentMax is how long a peer may be absent before the agent says so.
const absentMax = 5 * time.Second

type problems struct {
	mu     sync.Mutex
	byPeer map[string]problem
}

// problem describes why a peer isn't connected, or why its messages are ignored.
// Consecutive problems of one kind are logged once.
type problem struct{ kind, text string }

// add stores a problem. It reports whether the peer had none of this kind.
func (p *problems) add(peer string, what problem) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byPeer == nil {
		p.byPeer = map[string]problem{}
	}
	known := p.byPeer[peer].kind == what.kind
	p.byPeer[peer] = what
	return !known
}

func (p *problems) clear(peer string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.byPeer[peer]
	delete(p.byPeer, peer)
	return known
}

// addProblem stores a problem of a peer, and reports whether it is new. It ignores
// agents that aren't peers, or no longer: their problems would never be cleared.
func (t *Transport) addProblem(peer string, what problem) bool {
	t.mu.RLock()
	added := t.peers[peer] != nil && t.problems.add(peer, what)
	t.mu.RUnlock()
	if added {
		t.notifyChange()
	}
	return added
}

func (t *Transport) clearProblem(peer string) {
	if t.problems.clear(peer) {
		t.notifyChange()
	}
}

func (t *Transport) notifyChange() {
	if t.OnChange != nil {
		t.OnChange()
	}
}

// Problems returns one line, by peer, for each one that isn't connected, or whose messages
// are ignored, because of its configuration.
func (t *Transport) Problems() map[string]string {
	t.problems.mu.Lock()
	defer t.problems.mu.Unlock()
	lines := map[string]string{}
	for peer, problem := range t.problems.byPeer {
		lines[peer] = problem.text
	}
	return lines
}

// noteFailure stores why an attempt failed. The log has the first reason after absentMax: most absences are restarts.
func (p *peer) noteFailure(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	known := p.transport.Problems()[p.name] != "" // The log has it.
	p.mu.Lock()
	first := !known && p.conn == nil && !p.named && time.Since(p.absent) >= absentMax
	p.failure, p.named = err, p.named || first
	p.mu.Unlock()
	if first {
		p.transport.Log.Warn("cannot connect to peer for a while; retrying", "peer", p.name, "error", err)
	}
}

// Absent returns one line for each peer that can't be connected, except those with Problems. That a peer has stopped is
// usual.
func (t *Transport) Absent() (lines []string) {
	problems := t.Problems()
	t.mu.RLock()
	peers := slices.Collect(maps.Values(t.peers))
	t.mu.RUnlock()
	for _, p := range peers {
		p.mu.Lock()
		absent := time.Since(p.absent)
		if p.conn == nil && p.failure != nil && absent >= absentMax && problems[p.name] == "" {
			lines = append(lines, fmt.Sprintf("peer %s: not connected for %s: %s", p.name, absent.Round(time.Second), p.failure))
		}
		p.mu.Unlock()
	}
	slices.Sort(lines)
	return lines
}

// firstGrace is the age from which a connection is closed the first time because the certificate of its peer doesn't
// name a group. An agent that joins a group gets its new certificate within seconds.
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

func (r *renewals) forget(peer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.grace, peer)
}
