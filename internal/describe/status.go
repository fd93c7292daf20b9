package describe

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Status writes the status of a group: the coordinator, problems and how to resolve them, and the process status table.
func Status(w io.Writer, g *v1.ElectionGroup, now time.Time) {
	fmt.Fprintf(w, "%s/%s: %s\n", g.Namespace, g.Name, headline(g, now))
	fmt.Fprintln(w, strings.Join(summary(g), "; "))
	for _, p := range Problems(g) {
		fmt.Fprintf(w, "\n%s\n", strings.Join(p.lines(" for "+age(p.Since, now)), "\n"))
	}
	if text := DownTogether(g); text != "" {
		fmt.Fprintf(w, "\n%s\n", text)
	}
	for _, p := range Warnings(g, now) {
		fmt.Fprintf(w, "\nWarning (%s): %s\n  %s\n", p.Reason, p.Message, p.Advice)
	}
	if len(g.Status.Processes) > 0 {
		fmt.Fprintln(w)
		table(w, g.Status.Processes, now)
	}
	if len(g.Status.History) > 0 {
		fmt.Fprintln(w)
		history(w, g.Status.History, now)
	}
}

// Statuses writes the status of several groups: first that of each with a problem or a warning, and
// then a line for each other group.
func Statuses(w io.Writer, groups []v1.ElectionGroup, now time.Time) {
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "GROUP\tCOORDINATOR\tFOR\tUP\tALGORITHM\tMODE")
	healthy, shown := 0, 0
	for i := range groups {
		g := &groups[i]
		if len(Problems(g)) > 0 || len(Warnings(g, now)) > 0 || g.Status.Coordinator == nil {
			if shown++; shown > 1 {
				fmt.Fprintln(w)
			}
			Status(w, g, now)
			continue
		}
		healthy++
		up := ""
		if g.Status.Members != nil && g.Status.ReadyMembers != nil {
			up = fmt.Sprintf("%d of %d", *g.Status.ReadyMembers, *g.Status.Members)
		}
		c := g.Status.Coordinator
		fmt.Fprintf(columns, "%s/%s\t%s\t%s\t%s\t%s\t%s\n", g.Namespace, g.Name, c.Pod, age(c.ElectedAt.Time, now), up,
			g.Spec.Algorithm, g.Spec.Safety.Mode)
	}
	if healthy == 0 {
		return
	}
	if shown > 0 {
		fmt.Fprintln(w)
	}
	flushColumns(w, columns, &text)
}

func headline(g *v1.ElectionGroup, now time.Time) string {
	if c := g.Status.Coordinator; c != nil {
		return fmt.Sprintf("coordinator %s in term %d%s, elected %s ago", c.Pod, c.Term, ordinalOfElection(g),
			age(c.ElectedAt.Time, now))
	}
	if g.Status.Term > 0 {
		return fmt.Sprintf("no coordinator; the last term was %d", g.Status.Term)
	}
	return "no coordinator has been elected yet"
}

// MembersUp returns how many members are up, of how many. Both are 0 while the operator has not counted them.
func MembersUp(g *v1.ElectionGroup) (up, all int32) {
	if g.Status.Members != nil && g.Status.ReadyMembers != nil {
		up, all = *g.Status.ReadyMembers, *g.Status.Members
	}
	return up, all
}

// summary returns the facts for the second line.
func summary(g *v1.ElectionGroup) []string {
	all := []string{string(g.Spec.Algorithm), string(g.Spec.Safety.Mode)}
	if g.Status.Members != nil && g.Status.ReadyMembers != nil {
		all = append(all, fmt.Sprintf("%d of %s up", *g.Status.ReadyMembers, Count(int(*g.Status.Members), "member")))
	}
	if list := g.Status.Protocol.MemberList; list != nil {
		text := fmt.Sprintf("member list %d", list.Version)
		if list.State == v1.ListAdopting {
			text += " (being adopted)"
		}
		all = append(all, text)
	}
	return all
}

// table writes the process status table, with the zones if there are several. The reason is the
// last column because it may be long.
func table(w io.Writer, rows []v1.Process, now time.Time) {
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	zones := map[string]bool{}
	hasNode := false
	for i := range rows {
		zones[rows[i].Zone], hasNode = true, hasNode || rows[i].Node != ""
	}
	delete(zones, "")
	line := func(pod, priority, status, since, node, zone, reason string) {
		cells := []string{pod, priority, status, since}
		if hasNode {
			cells = append(cells, node)
		}
		if len(zones) > 1 {
			cells = append(cells, zone)
		}
		fmt.Fprintln(columns, strings.Join(append(cells, reason), "\t"))
	}
	line("POD", "PRIORITY", "STATUS", "SINCE", "NODE", "ZONE", "REASON")
	for i := range rows {
		row := &rows[i]
		since := ""
		if row.Since != nil {
			since = age(row.Since.Time, now)
		}
		line(row.Pod, fmt.Sprint(row.Priority), string(row.Status), since, row.Node, row.Zone, Reason(row))
	}
	flushColumns(w, columns, &text)
}

// flushColumns writes a table without the blanks at the ends of lines.
func flushColumns(w io.Writer, columns *tabwriter.Writer, text *strings.Builder) {
	columns.Flush() //nolint:errcheck // a Builder returns no errors
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// Reason returns the reason and the message of a row of the process status table, or "".
func Reason(p *v1.Process) string {
	if p.Reason != "" && p.Message != "" {
		return string(p.Reason) + ": " + p.Message
	}
	return string(p.Reason) + p.Message
}
