package describe_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// placed returns a group whose members are words as in "c/30@n1", with "*" after the coordinator,
// "-" after a member that is down and "!" after one that is up and ineligible. The words after a
// bar are the members of the previous list, which is still in force.
func placed(t *testing.T, mode v1.SafetyMode, members string) *v1.ElectionGroup {
	t.Helper()
	g := &v1.ElectionGroup{}
	g.Namespace, g.Name, g.Spec.Safety.Mode = "bank", "ledger", mode
	members, previous, adopting := strings.Cut(members, "|")
	list := &v1.MemberList{Version: 2, State: v1.ListSettled}
	for word := range strings.FieldsSeq(members) {
		text := strings.TrimRight(word, "*-!")
		name, at, _ := strings.Cut(text, "@")
		pod, number, _ := strings.Cut(name, "/")
		priority, err := strconv.ParseInt(number, 10, 32)
		must.Succeed(t, err)
		node, zone, _ := strings.Cut(at, "/")
		row := v1.Process{Pod: pod, Priority: int32(priority), Status: v1.ProcessNormal, Node: node, Zone: zone}
		switch word[len(text):] {
		case "*":
			row.Status, g.Status.Coordinator = v1.ProcessCoordinator, &v1.Coordinator{Pod: pod, Priority: row.Priority, Term: 7}
		case "-":
			row.Status = v1.ProcessCrashed
		case "!":
			row.Reason = v1.ProcessNotEligible
		}
		g.Status.Processes = append(g.Status.Processes, row)
		list.Members = append(list.Members, v1.Member{Pod: pod, Priority: row.Priority})
	}
	if adopting {
		list.State, list.Previous = v1.ListAdopting, &v1.PreviousList{}
		for pod := range strings.FieldsSeq(previous) {
			list.Previous.Members = append(list.Previous.Members, v1.Member{Pod: pod})
		}
	}
	g.Status.Protocol.MemberList = list
	return g
}

func formatPlaces(all []describe.Place) string {
	var words []string
	for _, p := range all {
		word := fmt.Sprintf("%s %s", p.Name, p.Loss)
		if p.Missing != "" {
			word += " (no " + p.Missing + ")"
		}
		words = append(words, strings.TrimSpace(word))
	}
	return strings.Join(words, ", ")
}

func TestLossOfAZone(t *testing.T) {
	g := placed(t, v1.Majority, "c/3@n1/east* b/2@n2/west a/1@n3/west")
	expect.Equal(t, formatPlaces(describe.Zones(g)), "east Elects, west Stops (no majority)")
	expect.Equal(t, formatPlaces(describe.Nodes(g)), "n1 Elects, n2 Keeps, n3 Keeps")
}

func TestIntactGroupHasAllMembers(t *testing.T) {
	g := placed(t, v1.Majority, "c/3@n1- b/2@n2! a/1@n3- | c x")
	expect.Equal(t, formatPlaces(describe.Nodes(describe.Intact(g))), "n1 Elects, n2 Elects, n3 Elects")
	expect.Equalf(t, g.Status.Processes[0].Status, v1.ProcessCrashed, "the group itself has changed")
}

func TestDownTogether(t *testing.T) {
	for members, want := range map[string]string{
		"c/3@n1* b/2@n2 a/1@n3":                         "",
		"c/3@n1* b/2@n2- a/1@n3":                        "",
		"c/3@n1* b/2@n2- a/1@n3-":                       "",
		"c/3@n1* b/2@n2- a/1@n2-":                       "Both members that are down are on n2.",
		"c/3@n1* b/2@n1- a/1@n1-":                       "", // One on this node is up.
		"d/4@n1 c/3@n2 b/2@n2- a/1@n2-":                 "Both members that are down are on n2.",
		"c/3@n1- b/2@n1- a/1@n1-":                       "All 3 members that are down are on n1.",
		"c/3@n1* b/2- a/1-":                             "", // They have no pods.
		"c/3@n1* b/2@n2- a/1-":                          "",
		"d/4@n1/x* c/3@n2/y- b/2@n3/y- a/1@n4/y-":       "All 3 members that are down are in zone y.",
		"d/4@n1/x* c/3@n2/x- b/2@n3/x- a/1@n4/x-":       "", // All members are in this zone.
		"e/5@n1/x* d/4@n2/x c/3@n3/y b/2@n4/y- a/1@n4-": "Both members that are down are on n4.",
	} {
		expect.Equalf(t, describe.DownTogether(placed(t, v1.Majority, members)), want, "%s", members)
	}
}

func TestNodeTable(t *testing.T) {
	ledger := placed(t, v1.Majority, "c/3@n1/x* b/2@n2/y a/1@n2/y")
	mail := placed(t, v1.Majority, "c/3@n2/y b/2@n3* a/1@n4")
	mail.Name = "mail"
	audit := placed(t, v1.Available, "a/3@n2/y*")
	audit.Name = "audit"
	stopped := placed(t, v1.Majority, "b/3@n4 a/1@n1-")
	var lines []string
	for _, row := range describe.NodeTable([]v1.ElectionGroup{*ledger, *mail, *audit, *stopped}) {
		lines = append(lines, fmt.Sprint(row))
	}
	want := "{n2 y [bank/audit] 4 [bank/ledger bank/audit]}\n{n1 x [bank/ledger] 2 []}\n{n3  " +
		"[bank/mail] 1 []}\n{n4  [] 2 []}"
	expect.Equal(t, strings.Join(lines, "\n"), want)
}

func TestJoinNames(t *testing.T) {
	for names, want := range map[string]string{
		"": "", "a": "a", "a b": "a and b", "a b c d e": "a, b, c, d and e", "a b c d e f g": "a, b, c, d, e and 2 more",
	} {
		expect.Equalf(t, describe.JoinNames(strings.Fields(names), "and"), want, "%s", names)
	}
}
