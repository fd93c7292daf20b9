package group

import (
	"fmt"
	"maps"
	"slices"

	"github.com/conclave-dev/conclave/internal/agent/wire"
)

// configMatches reports whether a peer has the same configuration. Messages of other
// peers are ignored: if two halves of a group had different configurations, each of
// them could have a majority. A mismatch is logged once, and is a problem until the
// configurations match.
func (g *Group) configMatches(peer string, message *wire.Message) bool {
	reason := ""
	switch {
	case message.ConfigDigest != g.configDigest:
		reason = "safety mode, lease or group UID differ"
	case message.Version == g.list.Version && message.Digest != g.listDigest:
		reason = fmt.Sprintf("member list of version %d, or the one before it, differs", message.Version)
	}
	before, known := g.mismatches[peer]
	switch {
	case reason == "" && !known:
		return true
	case !g.isListed(peer):
		return reason == "" // It has left the group, so this is no problem.
	case reason == "":
		delete(g.mismatches, peer)
		g.cfg.Log.Info("accepting peer: configuration matches again", "peer", peer)
	case reason != before:
		g.mismatches[peer] = reason
		g.cfg.Log.Error("ignoring peer: configuration mismatch", "peer", peer, "reason", reason)
	default:
		return false
	}
	g.updateProblems()
	return reason == ""
}

// dropDepartedMismatches removes the mismatches of peers that have left the group.
func (g *Group) dropDepartedMismatches() {
	before := len(g.mismatches)
	maps.DeleteFunc(g.mismatches, func(peer, _ string) bool { return !g.isListed(peer) })
	if len(g.mismatches) != before {
		g.updateProblems()
	}
}

// isListed reports whether a peer is a member by the current or the previous list.
func (g *Group) isListed(peer string) bool {
	return g.list.Has(peer) || g.list.Previous != nil && g.list.Previous.Has(peer)
}

func (g *Group) updateProblems() {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(g.mismatches)) {
		problems = append(problems, fmt.Sprintf("group %s: ignoring peer %s: %s", g.cfg.Group.Name, name, g.mismatches[name]))
	}
	g.problems.Store(&problems)
	g.reporter.dirty = true
}

// Problems returns one line for each peer whose messages are ignored.
func (g *Group) Problems() []string {
	if problems := g.problems.Load(); problems != nil {
		return *problems
	}
	return nil
}
