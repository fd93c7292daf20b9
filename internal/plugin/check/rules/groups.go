package rules

import (
	"fmt"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
)

func checkGroups(f *Facts) []Finding {
	if len(f.Groups) == 0 {
		message := "There are no groups."
		if f.Namespace != "" {
			message = "There are no groups in namespace " + f.Namespace + "; to check those of all namespaces, use -A."
		}
		return []Finding{{Level: OK, Object: "groups", Message: message}}
	}
	var all []Finding
	for i := range f.Groups {
		if f.Group == "" || f.Groups[i].Name == f.Group {
			all = append(all, checkGroup(f, &f.Groups[i])...)
		}
	}
	return all
}

func checkGroup(f *Facts, g *v1.ElectionGroup) []Finding {
	object := "group " + g.Namespace + "/" + g.Name
	var all []Finding
	for _, p := range describe.Problems(g) {
		level, message := Problem, p.Message
		if p.Reason == string(v1.ReasonNoFailover) { // Ready is True.
			level = Warning
		}
		if p.Type != "" {
			message = fmt.Sprintf("%s is %s (%s): %s", p.Type, p.Status, p.Reason, p.Message)
		}
		all = append(all, Finding{level, object, message, p.Advice})
	}
	if g.Status.Coordinator == nil && len(all) == 0 {
		all = append(all,
			Finding{Problem, object, "It has no coordinator.", "See: kubectl conclave status " + g.Name + " -n " + g.Namespace})
	}
	for _, p := range describe.Warnings(g, f.Now) {
		all = append(all, Finding{Warning, object, p.Message, p.Advice})
	}
	if len(all) == 0 {
		all = append(all,
			f.current(object, fmt.Sprintf("%s is the coordinator, and all members are up.", g.Status.Coordinator.Pod)))
	}
	return all
}
