package group

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// mismatch says in which respect the configuration of a peer differs. Each change is logged and reported. A peer that
// sends messages with alternating configurations must not fill the log, so changes are limited in number. At the limit,
// the last mismatch remains a problem until the period is over, although matching messages are accepted.
type mismatch struct {
	reason string
	// changes is the number of changes since periodStart.
	changes     int
	periodStart election.Tick
}

const (
	// mismatchPeriod is the time in which there are at most mismatchChanges of a peer.
	mismatchPeriod  = election.Tick(time.Minute)
	mismatchChanges = 10
)

// change sets the reason, unless there were too many changes. The last one of a period must be to a mismatch.
func (m *mismatch) change(reason string, now election.Tick) bool {
	if now-m.periodStart >= mismatchPeriod {
		m.periodStart, m.changes = now, 0
	}
	limit := mismatchChanges
	if reason == "" {
		limit-- // The peer may differ again.
	}
	if reason == m.reason || m.changes >= limit {
		return false
	}
	m.reason = reason
	m.changes++
	return true
}

// configMatches reports whether a peer has the same configuration. Messages of other peers are ignored: if two halves
// of a group had different configurations, each of them could have a majority. A mismatch is logged once, and is a
// problem until the configurations match.
func (g *Group) configMatches(peer transport.Sender, message *wire.Message) bool {
	reason, sameVersion := "", message.Version == g.list.Version
	switch {
	case message.ConfigDigest != g.configDigest:
		reason = "safety mode or group UID differ"
	case sameVersion && message.Digest != g.listDigest:
		reason = fmt.Sprintf("member list of version %d, or the one before it, differs", message.Version)
	case sameVersion && !g.recognizes(peer):
		reason = otherDirectory
	case sameVersion && message.Refuses:
		g.updateMismatch(peer.Name, refused)
		return true
	}
	g.updateMismatch(peer.Name, reason)
	return reason == ""
}

// The reasons that concern state directories. A list in a file doesn't name them, so the first one of each peer that an
// agent meets under a version counts. Another one doesn't know which terms the peer has granted or used.
const (
	otherDirectory = "it has lost its state directory: raise the version of the list in all files"
	refused        = "this agent has lost its state directory: raise the version of the list in all files"
)

// recognizes reports whether a peer has the state directory that it had first under the present list.
func (g *Group) recognizes(peer transport.Sender) bool {
	if g.cfg.Group.UID != "" || !g.list.Has(peer.Name) {
		return true
	}
	r := &g.reservation
	known := r.met[peer.Name]
	if known == 0 && peer.Identity != 0 {
		if r.met == nil {
			r.met = map[string]election.Identity{}
		}
		r.met[peer.Name], r.unsaved = peer.Identity, true
		return true
	}
	return known == peer.Identity
}

// refuses reports whether this process ignores a peer because of its state directory.
func (g *Group) refuses(peer string) bool {
	m := g.mismatches[peer]
	return m != nil && m.reason == otherDirectory
}

// updateMismatch logs and reports that the configuration of a peer differs in another
// respect than before, or matches again.
func (g *Group) updateMismatch(peer, reason string) {
	m, known := g.mismatches[peer]
	if !known {
		if reason == "" || !g.list.Concerns(peer) { // A peer that has left the group is no problem.
			return
		}
		m = &mismatch{}
		g.mismatches[peer] = m
	}
	if !m.change(reason, g.cfg.Clock.Now()) {
		return
	}
	switch reason {
	case "":
		g.cfg.Log.Info("accepting peer: configuration matches again", "peer", peer)
	case refused:
		g.cfg.Log.Error("ignored by peer", "peer", peer, "reason", reason)
	default:
		g.cfg.Log.Error("ignoring peer: configuration mismatch", "peer", peer, "reason", reason)
	}
	g.updateProblems()
}

// dropMismatches drops those of members that have departed, and those that concern state directories under another list
// than the next one.
func (g *Group) dropMismatches(nextVersion bool) {
	maps.DeleteFunc(g.mismatches, func(peer string, m *mismatch) bool {
		return !g.list.Concerns(peer) || nextVersion && (m.reason == otherDirectory || m.reason == refused)
	})
	g.updateProblems()
}

func (g *Group) updateProblems() {
	now := problems{ofPeers: map[string]string{}}
	if g.reservation.problem != "" {
		now.own = append(now.own, g.reservation.problem)
	}
	for _, name := range slices.Sorted(maps.Keys(g.mismatches)) {
		switch reason := g.mismatches[name].reason; reason {
		case "":
		case refused:
			now.own = append(now.own, fmt.Sprintf("group %s: ignored by peer %s: %s", g.cfg.Group.Name, name, reason))
		default:
			now.ofPeers[name] = fmt.Sprintf("group %s: ignoring peer %s: %s", g.cfg.Group.Name, name, reason)
		}
	}
	g.problems.Store(&now)
	g.reporter.dirty = true
}

type problems struct {
	own     []string
	ofPeers map[string]string
}

// Problems returns why this process can't vote, and one line for each peer whose messages are ignored, by peer.
func (g *Group) Problems() (own []string, ofPeers map[string]string) {
	p := g.problems.Load()
	return p.own, p.ofPeers
}

// listDigest returns the digest of a list. Mode Available has no grants, so the previous list doesn't matter there.
func listDigest(list memberlist.List, mode office.Mode) uint64 {
	if mode == office.Available {
		return list.Bare().Digest()
	}
	return list.Digest()
}

// configDigest returns a digest of the settings that all members must share, independently of their lists: the safety
// mode and the UID of the group. The operator may change a group from Majority to Strict while it runs. In the
// meantime, members in both modes accept each other, and the group has the guarantees of Majority.
func configDigest(group config.Group) uint64 {
	mode := group.Safety.Mode
	if group.UID != "" && mode == office.Strict {
		mode = office.Majority
	}
	h := fnv.New64a()
	_, _ = h.Write(append([]byte{byte(mode)}, group.UID...))
	return h.Sum64()
}
