package transport

import "sync"

// problems holds the current problem of each peer that has one.
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

// clear removes the problem of a peer. It reports whether there was one.
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
