package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
)

// SetProblems sets why the agent isn't ready. It replaces the problems of the previous call.
func (a *Agent) SetProblems(problems ...string) {
	a.mu.Lock()
	a.problems = problems
	a.mu.Unlock()
	a.Refresh()
}

// Refresh lets all groups handle changed problems and connections.
func (a *Agent) Refresh() {
	for _, g := range a.running() {
		g.Refresh()
	}
	go a.carriers.Update() // A coordinator's address may have become known.
}

// Problems returns why the agent isn't ready (/readyz), and other problems, such as those of its peers. It isn't ready
// before it votes and the coordinator knows: a rollout that went on before that would take the majority away from the
// coordinator, or its successor. In a pod, pod/api.go adds the problems of the time before the first document. The
// readiness of the pod itself is that of its application (ADR 37).
func (a *Agent) Problems() (own, others []string) {
	own, others = a.lastingProblems()
	others = append(others, a.transport.Absent()...)
	for _, g := range a.running() {
		if !g.Joined() {
			own = append(own, fmt.Sprintf("group %s: the member doesn't vote yet, or the coordinator doesn't count on it "+
				"yet: that takes at most two of the longest leases after a start", g.Name()))
		}
	}
	return own, others
}

// reportedProblems returns the problems that the operator learns: those that don't pass by themselves.
func (a *Agent) reportedProblems() []string {
	own, others := a.lastingProblems()
	return append(own, others...)
}

func (a *Agent) lastingProblems() (own, others []string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	own = append(slices.Clone(a.problems), sortedValues(a.notServed)...)
	if a.options.Problems != nil {
		further, warnings := a.options.Problems()
		own, others = append(own, further...), warnings
	}
	refused := a.transport.Problems()
	isOwn := map[string]bool{} // by the peer of a refused connection
	for i := range a.config.Groups {
		g := &a.config.Groups[i]
		joined := a.groups[g.Name]
		if joined == nil {
			continue
		}
		ofGroup, ignored := joined.Problems()
		own = append(own, ofGroup...)
		// An operator publishes the next list by itself.
		if used := election.Term(joined.Leader().Term).Counter(); g.UID == "" && used > election.LastTerm(0).Counter()/2 {
			others = append(others, fmt.Sprintf("group %s: more than half of the terms of version %d are used: "+
				"raise the version of the list in all files", g.Name, g.List.Version))
		}
		outvoted := isOutvoted(g, refused, ignored)
		if outvoted {
			own = append(own, sortedValues(ignored)...)
		} else {
			others = append(others, sortedValues(ignored)...)
		}
		for _, m := range g.List.Members {
			isOwn[m.Name] = isOwn[m.Name] || outvoted
		}
	}
	for _, peer := range slices.Sorted(maps.Keys(refused)) {
		if isOwn[peer] {
			own = append(own, refused[peer])
		} else {
			others = append(others, refused[peer])
		}
	}
	return own, others
}

// isOutvoted reports whether this agent and the members of a group whose configuration fits to its own are no majority.
// Then it is this agent that must be corrected, as far as it can know. Otherwise it is ready: one member with a wrong
// list must not make all others unready.
func isOutvoted(g *config.Group, problems ...map[string]string) bool {
	fit := 0
	for _, m := range g.List.Members {
		if !slices.ContainsFunc(problems, func(of map[string]string) bool { return of[m.Name] != "" }) {
			fit++
		}
	}
	return fit < len(g.List.Members)/2+1
}

func sortedValues(lines map[string]string) []string { return slices.Sorted(maps.Values(lines)) }
