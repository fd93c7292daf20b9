package decide

import (
	"cmp"
	"slices"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// firstListTimeout is how long the first list of a selector waits for the agents of all its pods, after the first one
// has connected.
const firstListTimeout = 3 * time.Second

// waits returns what has lasted long enough.
func (s *step) waits() (w membership.Waits) {
	w.Adopted = s.adopted()
	w.Published, w.Revision = s.published()
	s.Memory.Revision = w.Revision
	w.Missing, w.Retired = s.missing(w.Published != nil), s.retired()
	w.FirstListComplete, w.MajorityLost, w.WitnessLost = s.firstListTimedOut(), s.majorityLost(), s.witnessLost()
	for pod := range s.Fresh {
		if s.Pods[pod] != nil {
			s.reached(s.Now.Add(uncachedPodRecheck)) // If it is deleted before the cache has seen it, no watch reports that.
		}
	}
	return w
}

// adopted returns the members of the previous list that have reported the list in force for long enough.
func (s *step) adopted() map[string]bool {
	list := s.MemberList()
	if list == nil || list.Previous == nil || list.State != v1.ListAdopting {
		return nil
	}
	wait := membership.AdoptionWait(s.Group)
	adopted := map[string]bool{}
	for _, m := range list.Previous.Members {
		report := s.Report(m.Pod)
		if report != nil && int64(report.Version) == list.Version && s.reached(s.Agents[m.Pod].AdoptedAt.Add(wait)) {
			adopted[m.Pod] = true
		}
	}
	return adopted
}

// missing returns the members whose pods have been gone for long enough. The wait begins when the list in force has
// been published: a pod that is created before may begin with the previous list, and grant by it.
func (s *step) missing(isPublished bool) map[string]bool {
	list := s.MemberList()
	before := s.MissingSince
	s.MissingSince = nil
	if list == nil || !isPublished {
		return nil
	}
	if s.MissingVersion != list.Version {
		s.MissingVersion, before = list.Version, nil
	}
	members := list.Members
	if list.Previous != nil {
		members = append(slices.Clip(members), list.Previous.Members...)
	}
	grace := membership.MissingPodGrace(s.Group)
	missing := map[string]bool{}
	s.MissingSince = map[string]time.Time{}
	for _, m := range members {
		if !membership.Gone(s.Facts, m.Pod) {
			continue
		}
		since, known := before[m.Pod]
		if !known {
			since = s.Now
		}
		s.MissingSince[m.Pod] = since
		if s.reached(since.Add(grace)) {
			missing[m.Pod] = true
		}
	}
	return missing
}

// retired returns the members of the previous list whose processes have given up the identities that the list names.
// Nothing that they have granted is in force, and no process votes with these identities any more.
func (s *step) retired() map[string]bool {
	list := s.MemberList()
	if list == nil {
		return nil
	}
	given := map[string]string{}
	for _, m := range list.Members {
		given[m.Pod] = s.Memory.Retired[m.Pod]
		if report := s.Report(m.Pod); report != nil {
			given[m.Pod] = cmp.Or(report.Retired, given[m.Pod])
		}
	}
	s.Memory.Retired = given
	if list.Previous == nil {
		return nil
	}
	retired := map[string]bool{}
	for pod, identity := range list.Previous.Identities {
		retired[pod] = given[pod] == string(identity)
	}
	return retired
}

// majorityLost reports whether no majority of the members has been connected for membership.MajorityGrace. After a
// start of the operator, no agent is connected yet. So the wait begins again then, and a list that waits for its
// members isn't published because of that.
func (s *step) majorityLost() bool {
	list := s.MemberList()
	return s.lasts(&s.MajorityLostAt, list != nil && !facts.Majority(list, s.Accepts), membership.MajorityGrace)
}

// witnessLost reports whether a witness hasn't been connected for membership.WitnessGrace. If the group lacks one,
// the next step comes after that time, too: then there may be one.
func (s *step) witnessLost() bool {
	missing := func(name string) bool { return !s.Accepts(name) }
	lost := slices.ContainsFunc(membership.WitnessesOf(s.MemberList()), missing) ||
		membership.LacksWitness(s.Group, s.MemberList())
	if !s.lasts(&s.WitnessLostAt, lost, membership.WitnessGrace) {
		return false
	}
	s.reached(s.Now.Add(membership.WitnessGrace))
	return true
}

// lasts reports whether something has lasted for a grace.
func (s *step) lasts(since *time.Time, is bool, grace time.Duration) bool {
	switch {
	case !is:
		*since = time.Time{}
		return false
	case since.IsZero():
		*since = s.Now
	}
	return s.reached(since.Add(grace))
}

// firstListTimedOut reports whether the first list of a selector waits for no more agents: firstListTimeout has passed
// since the first one connected.
func (s *step) firstListTimedOut() bool {
	if s.FirstConnected.IsZero() {
		for name := range s.Agents {
			if s.Accepts(name) {
				s.FirstConnected = s.Now
			}
		}
	}
	if s.FirstConnected.IsZero() || s.MemberList() != nil {
		return false
	}
	return s.reached(s.FirstConnected.Add(firstListTimeout))
}

// published returns what identifies the published document, nil if there is none, and the highest known revision. That
// includes the revisions of an earlier group of the same name, and those that agents have although the status lost
// them.
func (s *step) published() (document *v1.PublishedDocument, revision int64) {
	document = s.Group.Status.Protocol.Document
	if document != nil && document.Revision > control.MaxRevision(s.Now) {
		document = nil
	}
	if before := s.Published; document == nil || before != nil && before.Revision > document.Revision {
		document = before // A backup was restored.
	}
	s.Published, revision = document, s.Memory.Revision
	if document != nil {
		revision = max(revision, document.Revision)
	}
	trusted := document != nil && s.majorityUses(document)
	for name, agent := range s.Agents {
		if s.Pods[name] == nil {
			continue
		}
		if agent.Report != nil && !trusted {
			revision = max(revision, s.adoptable(agent.Report.Revision))
		}
		revision = max(revision, s.adoptable(agent.Required))
	}
	return document, revision
}

// adoptable returns a revision that an agent reports, or 0 if the next one might be ahead of the clocks of other
// agents: they would refuse it.
func (s *step) adoptable(revision int64) int64 {
	if revision > control.MaxRevision(s.Now.Add(-time.Hour)) {
		return 0
	}
	return revision
}

// majorityUses reports whether a majority of the members uses a document or an earlier one. Then others that report
// later ones are wrong: an agent that always reports the next revision must not make the operator publish without end.
func (s *step) majorityUses(document *v1.PublishedDocument) bool {
	list := s.MemberList()
	return list != nil && facts.Majority(list, func(pod string) bool {
		report := s.Report(pod)
		return report != nil && report.Revision <= document.Revision
	})
}

// toRead returns what has to be read before the step can be made, or nil.
func (s *step) toRead() *Read {
	read := Read{Group: !s.Confirmed && s.mayBeStale()}
	if document, _ := s.published(); document != nil {
		read.Pods = s.newlyMissing()
	}
	if !read.Group && read.Pods == nil {
		return nil
	}
	return &read
}

// mayBeStale reports whether the group may be older than what an operator has already published: another operator, if
// the cache is behind. The API server would reject a status made from the older spec, but no other object.
//
// A newer generation in the status doesn't prove it: the status may come from a backup. Neither does an object that is
// missing, or that belongs to another group of the name: an earlier one, or a later one if the cache is behind.
func (s *step) mayBeStale() bool {
	lacksService := s.MemberList() != nil && s.Group.Spec.Service != nil && s.Service == nil && !s.ServicesForbidden
	return s.Group.Status.ObservedGeneration > s.Group.Generation || lacksService ||
		s.Service != nil && membership.OfOtherGroup(s.Service, s.Group) ||
		s.EndpointSlice != nil && membership.OfOtherGroup(s.EndpointSlice, s.Group)
}

// newlyMissing returns the members of the previous list whose pods begin to be missing with this step: the cache may be
// behind, or the label by which it selects pods may have been removed. A pod that exists, whatever the cache says, may
// grant by that list, so its last grant hasn't begun to expire. A pod that is created later begins with the list in
// force.
func (s *step) newlyMissing() (names []string) {
	list := s.MemberList()
	if list == nil || list.State != v1.ListAdopting {
		return nil
	}
	for _, m := range list.Previous.Members {
		_, known := s.MissingSince[m.Pod]
		if membership.Gone(s.Facts, m.Pod) && !s.Fresh[m.Pod] && !(known && s.MissingVersion == list.Version) {
			names = append(names, m.Pod)
		}
	}
	return names
}
