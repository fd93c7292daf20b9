package check

import (
	"fmt"
	"strings"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/cli/describe"
)

func checkGroups(f *Facts) []Finding {
	if len(f.Groups) == 0 {
		return []Finding{{Level: OK, Object: "groups", Message: "There are no groups."}}
	}
	var all []Finding
	for i := range f.Groups {
		if f.Group == "" || f.Groups[i].Name == f.Group {
			all = append(all, checkGroup(&f.Groups[i])...)
		}
	}
	return all
}

func checkGroup(g *v1.ElectionGroup) []Finding {
	object := "group " + g.Namespace + "/" + g.Name
	var all []Finding
	for _, p := range describe.Problems(g) {
		message := p.Message
		if p.Type != "" {
			message = fmt.Sprintf("%s is %s (%s): %s", p.Type, p.Status, p.Reason, p.Message)
		}
		all = append(all, Finding{Problem, object, message, p.Advice})
	}
	if g.Status.Coordinator == nil && len(all) == 0 {
		all = append(all, Finding{Problem, object, "It has no coordinator.", "See: kubectl conclave status " + g.Name + " -n " + g.Namespace})
	}
	all = append(all, checkSize(g, object)...)
	if len(all) == 0 {
		all = append(all, Finding{Level: OK, Object: object, Message: fmt.Sprintf("%s is the coordinator, and all members are up.", g.Status.Coordinator.Pod)})
	}
	return all
}

// checkSize finds groups that can't fail over.
func checkSize(g *v1.ElectionGroup, object string) []Finding {
	list := g.Status.MemberList
	if list == nil {
		return nil
	}
	eligible := 0
	for _, m := range list.Members {
		if m.Priority > 0 {
			eligible++
		}
	}
	needsMajority := !strings.EqualFold(string(g.Spec.Safety.Mode), string(v1.Available))
	switch {
	case needsMajority && len(list.Members) == 2:
		return []Finding{{
			Warning, object, "It has two members. A coordinator needs both, so it can't fail over.",
			"Add a third member. With priority 0, it votes and is never elected.",
		}}
	case eligible == 1 && len(list.Members) > 1:
		return []Finding{{Warning, object, "Only one member has a priority above 0, so no other can become coordinator.", "Give others a priority above 0."}}
	}
	return nil
}
