package transport

import (
	"cmp"
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

// check returns an error if a certificate isn't for the peer's pod. Members in a configuration
// file have no pods.
func (k *knownUIDs) check(peer, uid string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.byPeer[peer]
	if len(known) == 0 || slices.Contains(known, uid) {
		return nil
	}
	return fmt.Errorf("certificate of %q must be for its present pod, with UID %s, got %s", peer, known[0], cmp.Or(uid, "none"))
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
