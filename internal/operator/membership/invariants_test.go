package membership

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// refused are the rules of the schema, see api/v1/memberlist.go.
func violation(was, is *v1.MemberList) string {
	floor := func(l *v1.MemberList) int64 {
		if l.Floor == nil {
			return 0
		}
		return *l.Floor
	}
	switch {
	case is.Version == 1 && (is.Previous != nil || is.Departed != nil || is.Floor != nil || is.State != v1.ListSettled):
		return "version 1 has nothing before it"
	case is.Version > 1 && (is.Previous == nil || is.Previous.Version != is.Version-1 || is.Floor == nil):
		return "previous or floor is wrong"
	case was == nil:
		return ""
	case is.Version == was.Version:
		if was.State == v1.ListSettled && is.State != v1.ListSettled || formatMembers(is.Members) != formatMembers(was.Members) ||
			!equality.Semantic.DeepEqual(is.Previous, was.Previous) || floor(is) != floor(was) {
			return "the same version, and not the same list"
		}
	case is.Version != was.Version+1 || was.State != v1.ListSettled || is.State != v1.ListAdopting ||
		formatMembers(is.Previous.Members) != formatMembers(was.Members) || floor(is) < floor(was):
		return "it doesn't follow"
	}
	return ""
}

// check looks at a list that is in the status from now on.
func (w *simulation) checkList(list *v1.MemberList) {
	if known := w.published[list.Version]; known == nil {
		w.published[list.Version] = list
	} else if formatMembers(known.Members) != formatMembers(list.Members) {
		w.t.Errorf("version %d is %s and %s", list.Version, formatMembers(known.Members), formatMembers(list.Members))
	}
	if before := w.published[list.Version-1]; list.Previous != nil && formatMembers(before.Members) != formatMembers(list.Previous.Members) {
		w.t.Errorf("before version %d there was %s, not %s", list.Version, formatMembers(before.Members), formatMembers(list.Previous.Members))
	}
	for version, old := range w.published {
		if version > list.Version-2 && (version != list.Version-1 || list.State != v1.ListSettled) {
			continue
		}
		died, dead := w.lostMajority(version, old)
		if !dead {
			w.t.Errorf("%s, and a majority can still elect by version %d: %s", formatList(list), version, formatMembers(old.Members))
		} else if version <= list.Version-2 && *list.Floor < control.TermAt(died) {
			w.t.Errorf("the floor of version %d is %d, and version %d went on until %d", list.Version, *list.Floor, version, control.TermAt(died))
		}
	}
}

// dead reports whether so many members of a list have gone over to a later one,
// or are no more, that no majority is left, and since when.
func (w *simulation) lostMajority(version int64, list *v1.MemberList) (at time.Time, dead bool) {
	if at, known := w.lostMajorityAt[version]; known {
		return at, true
	}
	const lease = 500 * time.Millisecond
	count := 0
	for _, m := range list.Members {
		over := true
		for _, a := range w.allAgents[m.Pod] {
			until, goesOn := a.usedUntil(version)
			over = over && !goesOn && !w.now.Before(until.Add(lease))
		}
		if over {
			count++
		}
	}
	if count <= len(list.Members)/2 {
		return at, false
	}
	w.lostMajorityAt[version] = w.now
	return w.now, true
}
