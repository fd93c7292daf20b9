package transport

import (
	"maps"
	"slices"
	"sync"
)

// problems are what is wrong with peers, one each, for as long as it is.
type problems struct {
	mu     sync.Mutex
	byPeer map[string]problem
}

// problem is told of once, however often it is noticed.
type problem struct{ kind, text string }

// note reports whether that kind of problem with the peer is new.
func (p *problems) note(peer string, what problem) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byPeer == nil {
		p.byPeer = map[string]problem{}
	}
	known := p.byPeer[peer].kind == what.kind
	p.byPeer[peer] = what
	return !known
}

func (p *problems) solve(peer string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.byPeer[peer]
	delete(p.byPeer, peer)
	return known
}

// note reports whether that is news. What is wrong with one who is no peer, or no
// longer, is no problem of this agent's: nobody would ever solve it.
func (m *Transport) note(peer string, what problem) bool {
	m.mu.RLock()
	fresh := m.peers[peer] != nil && m.problems.note(peer, what)
	m.mu.RUnlock()
	if fresh {
		m.changed()
	}
	return fresh
}

func (m *Transport) solve(peer string) {
	if m.problems.solve(peer) {
		m.changed()
	}
}

func (m *Transport) changed() {
	if m.OnChange != nil {
		m.OnChange()
	}
}

// Problems are what is wrong with peers, a line for each.
func (m *Transport) Problems() []string {
	m.problems.mu.Lock()
	defer m.problems.mu.Unlock()
	var lines []string
	for _, peer := range slices.Sorted(maps.Keys(m.problems.byPeer)) {
		lines = append(lines, m.problems.byPeer[peer].text)
	}
	return lines
}
