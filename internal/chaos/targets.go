package chaos

import (
	"fmt"
	"slices"
)

// Victims returns the pods that a fault of this kind affects: the coordinator's first.
func Victims(kind string, s *State) []PodState {
	at := slices.IndexFunc(s.Pods, func(p PodState) bool { return p.Pod == s.Coordinator && !p.Terminating })
	if at < 0 || kind == Manager || kind == APIServer {
		return nil
	}
	coordinator := s.Pods[at]
	rest := slices.DeleteFunc(slices.Clone(s.Pods), func(p PodState) bool { return p.UID == coordinator.UID })
	var also func(PodState) bool
	switch kind {
	case Two:
		next := successor(s)
		also = func(p PodState) bool { return p.Pod == next }
	case All, Rollout:
		also = func(PodState) bool { return true }
	case Cordon, Drain, Node:
		also = func(p PodState) bool { return p.Node == coordinator.Node }
	default:
		also = func(PodState) bool { return false }
	}
	return append([]PodState{coordinator}, slices.DeleteFunc(rest, func(p PodState) bool { return !also(p) })...)
}

// successor returns the eligible member with the highest priority beside the coordinator.
func successor(s *State) string {
	var best Row
	for _, r := range s.Rows {
		if r.Pod != s.Coordinator && r.Up && r.Eligible && r.Priority > best.Priority {
			best = r
		}
	}
	return best.Pod
}

// Obstacle returns why a fault of this kind can't show a failover at present, or "". The members that a held fault
// spares must be able to elect another coordinator.
func Obstacle(kind Kind, s *State, victims []PodState, available bool) string {
	if kind.Expect != ElectionExpected {
		return ""
	}
	if len(victims) == 0 {
		return "the group has no coordinator"
	}
	if successor(s) == "" {
		return "no other member is eligible"
	}
	if !kind.Held {
		return ""
	}
	isVictim := func(name string) bool {
		return slices.ContainsFunc(victims, func(p PodState) bool { return p.Pod == name })
	}
	spared, eligible := 0, false
	for _, r := range s.Rows {
		if r.Up && !isVictim(r.Pod) {
			spared++
			eligible = eligible || r.Eligible
		}
	}
	switch {
	case !eligible:
		return fmt.Sprintf("all eligible members are on node %s", victims[0].Node)
	case kind.Name == Node && !available && spared <= s.Members/2:
		return fmt.Sprintf("%d of %d members are on node %s, so the others aren't a majority", s.Members-spared,
			s.Members, victims[0].Node)
	}
	return ""
}
