// Package memberlist has the member list of a group, from the status to the wire, to files and to elections. It decides
// how the list changes, for the operator and for that of the simulator (internal/sim), so that the simulator tests the
// code that runs. It is pure, and knows no Kubernetes.
//
// A list that is being adopted settles in one step, and the next list begins in another
// one. Each step is a version, or a change within a version:
//
//	v1 settled -> v2 adopting -> v2 adopting, b departed -> v2 settled -> v3 adopting
//
// Versions may have gaps: see Facts.Seconds.
//
// docs/adr/0002-grants.md has the rules that the members follow, and explains why the two
// parts together never permit two coordinators.
package memberlist

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
)

// A term has the version of a list, and a counter of the elections under that list: see election.Term.
const (
	CounterBits = 16
	MaxVersion  = 1<<30 - 1
	MaxTerm     = (MaxVersion+1)<<CounterBits - 1
)

// Member is a member of a list.
type Member struct {
	Name     string `json:"name"`
	Priority uint32 `json:"priority"`
	// Address is the host:port of the member's agent. It is empty if the operator doesn't know the address yet.
	Address string `json:"address,omitempty"`
	// UID is that of the pod that has the address. It is empty outside of pods, and if the operator doesn't know the pod.
	UID string `json:"uid,omitempty"`
	// Identity is that of the member's state directory: see FormatIdentity. It is empty in a file, and until the operator
	// knows it. Only a process with that identity votes as this member: another one doesn't know what has been granted.
	Identity string `json:"identity,omitempty"`
}

// List is a version of the member list. An election has its votes by index: see election.RosterOf.
type List struct {
	// Version is the number of the list. It is above those of all earlier lists, and so is each term of the list.
	Version uint32 `json:"version"`
	// Members are in the order of the ring.
	Members []Member `json:"members"`
	// Previous is the list before this one, as Bare returns it, and nil for the first one. If a configuration file doesn't
	// specify it, the agent uses the list that it adopted last.
	Previous *List `json:"previous,omitempty"`
	// Departed are members of Previous that ended at least an AdoptionWait ago.
	Departed []string `json:"departed,omitempty"`
	// Settled: a majority of Previous has adopted this list, or has departed. LeaseMillis is the longest lease of the
	// members that have adopted it. Only the operator needs both: it tells agents their lease among the settings.
	Settled     bool  `json:"-"`
	LeaseMillis int32 `json:"-"`
}

// Bare returns the list as the next one has it, without those before.
func (l *List) Bare() *List {
	return &List{Version: l.Version, Members: l.Members, LeaseMillis: l.LeaseMillis}
}

// Has reports whether name is a member. There are none without a list.
func (l *List) Has(name string) bool {
	return l != nil && slices.ContainsFunc(l.Members, func(m Member) bool { return m.Name == name })
}

// Concerns reports whether name is a member of the list or of the one before.
func (l *List) Concerns(name string) bool { return l.Has(name) || l.Previous.Has(name) }

// Digest returns a digest by which members detect different lists of the same version. It includes the previous list,
// whose majority matters as well, and neither where a member is nor its identity, which may become known later.
func (l *List) Digest() uint64 {
	h := fnv.New64a()
	for ; l != nil; l = l.Previous {
		b := binary.LittleEndian.AppendUint32(nil, l.Version)
		for _, m := range l.Members {
			b = binary.LittleEndian.AppendUint32(append(b, m.Name...), m.Priority)
		}
		_, _ = h.Write(b) // A hash never returns an error.
	}
	return h.Sum64()
}

// FormatIdentity returns the identity of a state directory as text: 16 hexadecimal digits, and nothing for 0, which
// means that it isn't known.
func FormatIdentity(identity uint64) string {
	if identity == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", identity)
}

// ParseIdentity is the inverse of FormatIdentity. It accepts no other form.
func ParseIdentity(text string) (uint64, error) {
	identity, _ := strconv.ParseUint(text, 16, 64) // The number of another text has a form that differs from it.
	if FormatIdentity(identity) != text {
		return 0, fmt.Errorf("must have 16 hexadecimal digits, got %.20q", text)
	}
	return identity, nil
}

// Facts is what the operator knows when it decides about the next step.
type Facts struct {
	// Wanted are the members that the list should have, without identities. It is empty if these must not change.
	Wanted []Member
	// Identity returns the identity of a member's connected process, or "" if none is connected. Another identity than
	// that in the list needs the next list.
	Identity func(string) string
	// LeaseMillis is the lease that the list should have.
	LeaseMillis int32
	// Draining: the coordinator isn't in the list any more, or has priority 0 there, and its application
	// stops. Members renew its tenure until it has stopped, as long as it is in the list before.
	Draining bool
	// Published: a member that starts now begins with the current version.
	Published bool
	// Adopted reports whether a member of the previous list has reported the current version for an AdoptionWait. It may
	// have another identity than in the previous list: the process with that had ended before.
	Adopted func(string) bool
	// Missing reports whether the process of a member of the previous list ended at least an AdoptionWait ago, and also
	// that long after the current version was published. A process that has given up its identity, with no grant in force,
	// is missing at once.
	Missing func(string) bool
	// Seconds is the time by the operator's clock, since the beginning of 2026. A new list has that version, if it is
	// above the present one: so the terms of a group exceed those of an earlier group of the same name. Nothing else
	// depends on it.
	Seconds int64
	// Term is the highest term that a member has reported.
	Term int64
}

// maxSeconds bounds the versions that come from a clock or from a report. So neither a clock that is decades ahead nor
// a member that lies can use up the versions: half of them remain for steps of one.
const maxSeconds = 1 << 29

// maxAhead is how much newer than the present list the next one may be: two years, if versions are seconds. Members
// that still have the present list refuse the messages of others whose list is newer than that.
const maxAhead = 1 << 26

// halfOfCounters is the number of terms after which a group needs the next list.
const halfOfCounters = 1 << 15

// AdoptionWait returns the time for which a member must have reported a list, or must have ended, before it counts as
// having adopted the list. By then, its earlier grants have expired on any clock whose rate differs by less than an
// eighth. The lease is the longest one for which it may have granted: see List.LongestLease.
func AdoptionWait[D ~int64](lease D) D { return lease * 9 / 8 }

// LongestLease returns the longest lease that a coordinator can rely on while the list is in force. A member that
// missed some lists may grant for the longer lease of an older one, but only to a process that has missed the same
// lists, or for the shorter lease of another one. Such a process can't acquire the office, because each list settles
// only when a majority of the one before has adopted it.
func (l *List) LongestLease() int32 {
	if l.Previous == nil {
		return l.LeaseMillis
	}
	return max(l.LeaseMillis, l.Previous.LeaseMillis)
}

// Next returns the next step after a list, which may be nil. It returns the same list if
// nothing changes. It returns nil if there is no list and none is wanted.
func (f *Facts) Next(current *List) *List {
	if current == nil {
		if len(f.Wanted) == 0 {
			return nil
		}
		return &List{
			Version: f.version(0), Members: f.identified(f.Wanted, nil), LeaseMillis: f.LeaseMillis, Settled: true,
		}
	}
	members, lease := f.Wanted, f.LeaseMillis
	if len(members) == 0 {
		members, lease = current.Members, current.LeaseMillis
	}
	members = f.identified(members, current.Members)
	bound := f.bind(current)
	switch {
	case !current.Settled:
		return f.advance(bound)
	case bound != current:
		return bound
	case slices.Equal(members, current.Members) && lease == current.LeaseMillis && !f.countersRunOut(current):
		return current
	case f.Draining:
		return current // The next list would end its tenure.
	}
	return &List{Version: f.version(current.Version), Members: members, LeaseMillis: lease, Previous: current.Bare()}
}

// version returns the version of a list that follows a present one.
func (f *Facts) version(present uint32) uint32 {
	next := present + 1
	for _, version := range []int64{f.Seconds, f.Term>>CounterBits + 1} {
		if version <= maxSeconds && (present == 0 || version <= int64(present)+maxAhead) {
			next = max(next, uint32(max(version, 0))) //nolint:gosec // It is bounded.
		}
	}
	return next
}

// countersRunOut reports whether elections have used up half of the counters of a list, or members have granted a claim
// under a list that doesn't exist. They would grant no claims under this one.
func (f *Facts) countersRunOut(current *List) bool {
	version := int64(current.Version)
	return f.Term > version<<CounterBits+halfOfCounters && f.Term>>CounterBits <= version+maxAhead
}

// identified returns a copy of members, with the identities of their connected processes, or else those in the current
// list.
func (f *Facts) identified(members, current []Member) []Member {
	known := make(map[string]string, len(current))
	for _, m := range current {
		known[m.Name] = m.Identity
	}
	members = slices.Clone(members)
	for i, m := range members {
		if members[i].Identity = f.Identity(m.Name); members[i].Identity == "" {
			members[i].Identity = known[m.Name]
		}
	}
	return members
}

// bind returns the list with the identities of those members that had none, and are connected. That needs no new
// version, because no process has voted as such a member. It returns the same list if nothing changes.
func (f *Facts) bind(current *List) *List {
	bound := *current
	bound.Members = slices.Clone(current.Members)
	for i, m := range bound.Members {
		if m.Identity == "" {
			bound.Members[i].Identity = f.Identity(m.Name)
		}
	}
	if slices.Equal(bound.Members, current.Members) {
		return current
	}
	return &bound
}

// advance returns the next state of a list that is being adopted: with more departed
// members, or settled if a majority of the previous list has adopted it.
func (f *Facts) advance(current *List) *List {
	if !f.Published {
		return current // A member that starts now would still begin with the previous list.
	}
	departed := make(map[string]bool, len(current.Departed))
	for _, name := range current.Departed {
		departed[name] = true
	}
	next := *current
	next.Departed = slices.Clone(current.Departed)
	count := 0
	for _, m := range current.Previous.Members {
		if !departed[m.Name] && f.Missing(m.Name) {
			departed[m.Name] = true
			next.Departed = append(next.Departed, m.Name)
		}
		if departed[m.Name] || f.Adopted(m.Name) {
			count++
		}
	}
	next.Settled = count > len(current.Previous.Members)/2
	if !next.Settled && len(next.Departed) == len(current.Departed) {
		return current
	}
	return &next
}

// NotNeeded returns the members of the previous list whose votes the members do not need. When the list has settled,
// these are all of them: otherwise a member that starts later would wait for a majority of members that may no longer
// exist. The result for the first list is nil.
func (l *List) NotNeeded() []string {
	if !l.Settled || l.Previous == nil {
		return l.Departed
	}
	all := make([]string, len(l.Previous.Members))
	for i, m := range l.Previous.Members {
		all[i] = m.Name
	}
	return all
}
