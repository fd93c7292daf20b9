package transport

import (
	"fmt"
	"slices"
	"sync"
)

// knownUIDs are the UIDs of the peers' pods. A pod may be replaced by another one of the
// same name. The certificate of the former pod is valid until it expires, so the UID in it
// decides.
type knownUIDs struct {
	mu     sync.Mutex
	byPeer map[string][]string
}

// check returns an error if a certificate is for another pod than the peer's. Without a
// UID on either side there is nothing to compare: an older operator issued the
// certificate, or published the member list, or the peer has no pod.
func (k *knownUIDs) check(peer, uid string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.byPeer[peer]
	if uid == "" || len(known) == 0 || slices.Contains(known, uid) {
		return nil
	}
	return fmt.Errorf("certificate of %q must be for its present pod, with UID %s, got %s", peer, known[0], uid)
}

// SetUIDs replaces the known UIDs of the peers' pods. Connections with other pods are closed.
func (t *Transport) SetUIDs(byPeer map[string][]string) {
	t.uids.mu.Lock()
	t.uids.byPeer = byPeer
	t.uids.mu.Unlock()
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.peers {
		p.mu.Lock()
		p.closeForeign()
		p.mu.Unlock()
	}
}

// closeForeign closes the connection if it is with another pod of the peer's name. The
// caller holds the lock.
func (p *peer) closeForeign() {
	if p.conn == nil {
		return
	}
	if err := p.transport.uids.check(p.name, p.conn.uid); err != nil {
		p.transport.Log.Info("closed connection", "peer", p.name, "reason", err)
		p.conn.close()
	}
}
