// Package memberlist decides how the member list of a group changes. The operator and the
// operator of the simulator (internal/sim) both use it, so that the simulator tests the
// code that runs. It is pure, and knows no Kubernetes.
//
// A list that is being adopted settles in one step, and the next list begins in another
// one. Each step is a version, or a change within a version:
//
//	v1 settled -> v2 adopting -> v2 adopting, b departed -> v2 settled -> v3 adopting
//
// docs/adr/0002-grants.md has the rules that the members follow, and explains why the two
// parts together never permit two coordinators.
package memberlist

import "slices"

// Member is a member and its priority. N is the type of names: the operator uses the
// names of pods, the simulator the IDs of processes.
type Member[N comparable] struct {
	Name     N
	Priority int64
}

// List is a version of the member list, in the order of the ring.
type List[N comparable] struct {
	// Version is the number of the list, from 1.
	Version int64
	Members []Member[N]
	// Previous are the members of the list before; none for the first one.
	Previous []Member[N]
	// Lease is the lease of the members that have adopted this list, and PreviousLease that
	// of the list before; 0 if there is none.
	Lease, PreviousLease int64
	// Departed are members of Previous that ended at least an AdoptionWait ago.
	Departed []N
	// Floor is a term that was not exceeded under any list before Previous, nor by what
	// the departed members granted; 0 for the first list.
	Floor int64
	// Settled: a majority of Previous has adopted this list, or has departed.
	Settled bool
}

// Facts is what the operator knows when it decides about the next step.
type Facts[N comparable] struct {
	// Wanted are the members that the list should have. It is empty if the list must not
	// change.
	Wanted []Member[N]
	// Lease is the lease that the list should have.
	Lease int64
	// Draining: the coordinator isn't in the list any more, or has priority 0 there, and its application
	// stops. Members renew its tenure until it has stopped, as long as it is in the list before.
	Draining bool
	// Published: a member that starts now begins with the current version.
	Published bool
	// Adopted reports whether a member of the previous list has reported the current
	// version for an AdoptionWait.
	Adopted func(N) bool
	// Missing reports whether a member of the previous list ended at least an AdoptionWait
	// ago, and also that long after the current version was published.
	Missing func(N) bool
	// NextFloor returns the floor of a list that is published now, after a present floor: the
	// NextFloor of package election, with the operator's clock.
	NextFloor func(floor int64) int64
	// Term is the highest term that a member has reported.
	Term int64
}

// AdoptionWait returns the time for which a member must have reported a list, or must have
// ended, before it counts as having adopted the list. By then, its earlier grants have
// expired on any clock whose rate differs by less than an eighth.
// The lease is the longest one for which it may have granted: see List.LongestLease.
func AdoptionWait[D ~int64](lease D) D { return lease * 9 / 8 }

// LongestLease returns the longest lease that a coordinator can rely on while the list is in
// force. A member that missed some lists may grant for the longer lease of an older one, but
// only to a process that has missed the same lists, or for the shorter lease of another one.
// Such a process can't acquire the office, because each list settles only when a majority of
// the one before has adopted it.
func (l *List[N]) LongestLease() int64 { return max(l.Lease, l.PreviousLease) }

// Next returns the next step after a list, which may be nil. It returns the same list if
// nothing changes. It returns nil if there is no list and none is wanted.
func (f *Facts[N]) Next(current *List[N]) *List[N] {
	switch {
	case current == nil && len(f.Wanted) == 0:
		return nil
	case current == nil:
		return &List[N]{Version: 1, Members: f.Wanted, Lease: f.Lease, Settled: true}
	case !current.Settled:
		return f.advance(current)
	case len(f.Wanted) == 0 || slices.Equal(f.Wanted, current.Members) && f.Lease == current.Lease:
		return current
	case f.Draining:
		return current // The next list would end its tenure.
	}
	return &List[N]{
		Version: current.Version + 1, Members: f.Wanted, Previous: current.Members,
		Lease: f.Lease, PreviousLease: current.Lease, Floor: f.nextFloor(current.Floor),
	}
}

// advance returns the next state of a list that is being adopted: with more departed
// members, or settled if a majority of the previous list has adopted it.
func (f *Facts[N]) advance(current *List[N]) *List[N] {
	if !f.Published {
		return current // A member that starts now would still begin with the previous list.
	}
	departed := make(map[N]bool, len(current.Departed))
	for _, name := range current.Departed {
		departed[name] = true
	}
	next := *current
	next.Departed = slices.Clone(current.Departed)
	count := 0
	for _, m := range current.Previous {
		if !departed[m.Name] && f.Missing(m.Name) {
			departed[m.Name] = true
			next.Departed = append(next.Departed, m.Name)
		}
		if departed[m.Name] || f.Adopted(m.Name) {
			count++
		}
	}
	next.Settled = count > len(current.Previous)/2
	if !next.Settled && len(next.Departed) == len(current.Departed) {
		return current
	}
	next.Floor = f.nextFloor(current.Floor)
	return &next
}

// nextFloor returns the floor of the next list, or of one of which more members have
// departed, after the present floor: earlier terms are at most that. Members elect in terms
// above it at once.
func (f *Facts[N]) nextFloor(floor int64) int64 {
	return max(f.NextFloor(floor), f.Term)
}

// NotNeeded returns the members of the previous list whose votes the members do not need.
// When the list has settled, these are all of them: otherwise a member that starts later
// would wait for a majority of members that may no longer exist. The result for the first
// list is nil.
func (l *List[N]) NotNeeded() []N {
	if !l.Settled || l.Previous == nil {
		return l.Departed
	}
	all := make([]N, len(l.Previous))
	for i, m := range l.Previous {
		all[i] = m.Name
	}
	return all
}
