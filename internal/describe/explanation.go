package describe

import (
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Explanation is what Explain writes, for programs.
type Explanation struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Coordinator is not set if the group has none.
	Coordinator *v1.Coordinator `json:"coordinator,omitempty"`
	// Reason says why it, or no member, was elected.
	Reason []string `json:"reason"`
	// Next are the eligible members besides the coordinator, in the order in which they
	// would be elected.
	Next []string `json:"next"`
	// Members counts the members, Up those that are up, and Needed those that a
	// coordinator needs.
	Members          int       `json:"members"`
	Up               int       `json:"up"`
	Needed           int       `json:"needed"`
	FailureTolerance []string  `json:"failureTolerance"`
	Problems         []Problem `json:"problems"`
	Warnings         []Problem `json:"warnings,omitempty"`
	// DownTogether says which node or zone the members that are down share.
	DownTogether string `json:"downTogether,omitempty"`
	// At is the time of the explanation.
	At time.Time `json:"at"`
}

// ExplanationOf explains a group.
func ExplanationOf(g *v1.ElectionGroup, now time.Time) Explanation {
	a := analyze(g)
	e := Explanation{
		Namespace: g.Namespace, Name: g.Name, Coordinator: g.Status.Coordinator,
		Reason: electionReason(g, &a, now), Next: []string{}, Members: a.members, Up: a.up, Needed: 1,
		FailureTolerance: failureTolerance(g, &a), Problems: append([]Problem{}, Problems(g)...), Warnings: Warnings(g, now), DownTogether: DownTogether(g), At: now.UTC(),
	}
	if a.needsMajority {
		e.Needed = a.majority
	}
	for i := range a.candidates {
		e.Next = append(e.Next, a.candidates[i].Pod)
	}
	return e
}
