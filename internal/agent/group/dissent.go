package group

import (
	"fmt"
	"maps"
	"slices"

	"github.com/conclave-dev/conclave/internal/agent/wire"
)

// agrees reports whether a peer goes by the same rules. One that doesn't isn't
// listened to: two halves of a group that each go by their own can't both have
// a majority of it. It is told once, and stays a problem until it agrees.
func (g *Group) agrees(peer string, letter *wire.Message) bool {
	why := ""
	switch {
	case letter.ConfigDigest != g.charter:
		why = "has another safety mode or lease, or takes part in another group of this name"
	case letter.Version == g.list.Version && letter.Digest != g.digest:
		why = fmt.Sprintf("has another list of version %d, or another one before it", letter.Version)
	}
	before, known := g.dissenters[peer]
	switch {
	case why == "" && !known:
		return true
	case !g.lists(peer):
		return why == "" // What one who has left goes by is nobody's problem.
	case why == "":
		delete(g.dissenters, peer)
		g.cfg.Log.Info("a peer agrees again", "peer", peer)
	case why != before:
		g.dissenters[peer] = why
		g.cfg.Log.Error("a peer isn't listened to", "peer", peer, "because", "it "+why)
	default:
		return false
	}
	g.blame()
	return why == ""
}

// forgive forgets what was wrong with peers that are on no list any more: nobody
// waits for them to come round.
func (g *Group) forgive() {
	before := len(g.dissenters)
	maps.DeleteFunc(g.dissenters, func(peer, _ string) bool { return !g.lists(peer) })
	if len(g.dissenters) != before {
		g.blame()
	}
}

// lists reports whether a peer is on the list, or on the one before it.
func (g *Group) lists(peer string) bool {
	return g.list.Has(peer) || g.list.Previous != nil && g.list.Previous.Has(peer)
}

// blame says what is wrong with peers now.
func (g *Group) blame() {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(g.dissenters)) {
		problems = append(problems, fmt.Sprintf("group %s: %s %s, and isn't listened to", g.cfg.Group.Name, name, g.dissenters[name]))
	}
	g.problems.Store(&problems)
	g.reporter.stale = true
}

// Problems are why peers aren't listened to, a line for each.
func (g *Group) Problems() []string {
	if problems := g.problems.Load(); problems != nil {
		return *problems
	}
	return nil
}
