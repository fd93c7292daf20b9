package mesh

import (
	"maps"
	"slices"
	"sync"
)

// problems are what keeps peers from being connected with, for as long as it does.
type problems struct {
	mu   sync.Mutex
	text map[string]string
	kind map[string]string
}

// note reports whether that kind of problem with the peer is new.
func (p *problems) note(peer, text, kind string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text == nil {
		p.text, p.kind = map[string]string{}, map[string]string{}
	}
	known := p.kind[peer] == kind
	p.text[peer], p.kind[peer] = text, kind
	return !known
}

func (p *problems) solve(peer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.text, peer)
	delete(p.kind, peer)
}

// Problems are why peers aren't connected with, a line for each.
func (m *Mesh) Problems() []string {
	m.problems.mu.Lock()
	defer m.problems.mu.Unlock()
	var lines []string
	for _, peer := range slices.Sorted(maps.Keys(m.problems.text)) {
		lines = append(lines, m.problems.text[peer])
	}
	return lines
}
