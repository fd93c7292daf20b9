package membership

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// violation returns the violated rule of the schema, or "": see api/v1/memberlist.go.
func violation(was, is *v1.MemberList) string {
	floor := func(l *v1.MemberList) int64 {
		if l.Floor == nil {
			return 0
		}
		return *l.Floor
	}
	switch {
	case is.Version == 1 && (is.Previous != nil || is.Departed != nil || is.Floor != nil || is.State != v1.ListSettled):
		return "version 1 must not have a previous list"
	case is.Version > 1 && (is.Previous == nil || is.Floor == nil):
		return "previous or floor is invalid"
	case was == nil:
		return ""
	case is.Version == was.Version:
		if was.State == v1.ListSettled && is.State != v1.ListSettled || formatMembers(is.Members) != formatMembers(was.Members) ||
			!equality.Semantic.DeepEqual(is.Previous, was.Previous) {
			return "the list has changed under the same version"
		}
		if was.LeaseMillis != 0 && is.LeaseMillis != was.LeaseMillis {
			return "the lease has changed under the same version"
		}
		unchanged := len(is.Departed) == len(was.Departed) && is.State == was.State
		if floor(is) < floor(was) || unchanged && floor(is) != floor(was) {
			return "the floor has changed without a departure"
		}
	case is.Version != was.Version+1 || was.State != v1.ListSettled || is.State != v1.ListAdopting ||
		formatMembers(is.Previous.Members) != formatMembers(was.Members) || floor(is) < floor(was):
		return "the list is not a successor"
	}
	return ""
}

// checkSilence checks the silent period of an agent that starts with a document: while a
// majority can still elect by an earlier list, it must not grant before the grants of the
// earlier agents of its name have expired. It remembers nothing of them.
func (s *simulation) checkSilence(name string, d *control.Document) {
	silent := d.Group.Safety.LongestLeaseMillis
	if d.Group.Previous != nil {
		silent = max(silent, d.Group.Previous.LeaseMillis)
	}
	grantsAt := s.now.Add(time.Duration(silent) * time.Millisecond)
	for _, a := range s.allAgents[name] {
		for i, adopted := range a.adoptions {
			until := a.ended
			if i+1 < len(a.adoptions) {
				until = a.adoptions[i+1].at
			}
			list := s.published[int64(adopted.version)]
			lease := time.Duration(list.LeaseMillis) * time.Millisecond
			if _, lost := s.lostMajority(list.Version, list); !lost && grantsAt.Before(until.Add(lease)) {
				s.t.Errorf("%s is silent for %d ms with version %d, but an earlier agent of its name has granted for %s by version %d",
					name, silent, d.Group.Version, lease, list.Version)
			}
		}
	}
}

// checkLease checks that a list doesn't get another lease after it was published: agents may have granted
// for the first one.
func (s *simulation) checkLease(before, document *control.Document) {
	lease, version := document.Group.Safety.LongestLeaseMillis, document.Group.Version
	if before != nil && before.Group.Version == version && before.Group.Safety.LongestLeaseMillis != lease {
		s.t.Errorf("version %d: got leases of %d and %d ms", version, before.Group.Safety.LongestLeaseMillis, lease)
	}
}

// checkList checks the invariants when a list is written to the status. A list loses its
// majority when so many members have adopted a later list, or have ended, that the others
// are no majority. All lists before the previous one must have lost their majority, and
// when a list settles, so must the previous one.
func (s *simulation) checkList(list *v1.MemberList) {
	known := s.published[list.Version]
	if known != nil && formatMembers(known.Members) != formatMembers(list.Members) {
		s.t.Errorf("version %d: got members %s and %s", list.Version, formatMembers(known.Members), formatMembers(list.Members))
	}
	if known == nil {
		s.published[list.Version] = list
	}
	if before := s.published[list.Version-1]; list.Previous != nil && formatMembers(before.Members) != formatMembers(list.Previous.Members) {
		s.t.Errorf("before version %d: got members %s, want %s", list.Version, formatMembers(before.Members), formatMembers(list.Previous.Members))
	}
	for version, old := range s.published {
		if version > list.Version-2 && (version != list.Version-1 || list.State != v1.ListSettled) {
			continue
		}
		lostAt, lost := s.lostMajority(version, old)
		if !lost {
			s.t.Errorf("got list %s, but a majority can still elect with version %d: %s", formatList(list), version, formatMembers(old.Members))
		} else if version <= list.Version-2 && *list.Floor < control.TermAt(lostAt) {
			s.t.Errorf("version %d: got floor %d, but version %d was in use until term %d", list.Version, *list.Floor, version, control.TermAt(lostAt))
		}
	}
}

// lostMajority reports whether a list has lost its majority, and since when.
func (s *simulation) lostMajority(version int64, list *v1.MemberList) (at time.Time, lost bool) {
	if at, known := s.lostMajorityAt[version]; known {
		return at, true
	}
	// A process that holds the office by this list requests grants for its lease, and no
	// member grants for longer.
	lease := time.Duration(list.LeaseMillis) * time.Millisecond
	count := 0
	for _, m := range list.Members {
		over := true
		for _, a := range s.allAgents[m.Pod] {
			until, still := a.usedUntil(version)
			over = over && !still && !s.now.Before(until.Add(lease))
		}
		if over {
			count++
		}
	}
	if count <= len(list.Members)/2 {
		return at, false
	}
	s.lostMajorityAt[version] = s.now
	return s.now, true
}
