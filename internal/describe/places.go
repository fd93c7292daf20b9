package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Loss is what happens to a group when members fail at the same time.
type Loss string

// The losses.
const (
	// Keeps: the coordinator remains.
	Keeps Loss = "Keeps"
	// Elects: the coordinator is lost, and another member becomes coordinator.
	Elects Loss = "Elects"
	// Stops: there is no coordinator until members are up again.
	Stops Loss = "Stops"
)

// What a group misses if it stops.
const (
	Majority       = "majority"
	EligibleMember = "eligible member"
)

// loss decides what happens if members fail at the same time. If the group stops, it also returns what is missing then.
func (a *analysis) loss(lost ...string) (loss Loss, missing string) {
	for _, v := range a.votes {
		have := len(v.up)
		for _, pod := range lost {
			if v.up[pod] {
				have--
			}
		}
		if a.needsMajority && have < v.majority {
			return Stops, Majority
		}
	}
	switch {
	case a.coordinator != "" && !slices.Contains(lost, a.coordinator):
		return Keeps, ""
	case slices.ContainsFunc(a.candidates, func(p v1.Process) bool { return !slices.Contains(lost, p.Pod) }):
		return Elects, ""
	}
	return Stops, EligibleMember
}

// Place is a node or a zone in which members are.
type Place struct {
	Name string
	// Members are the pods in it, those with the highest priority first.
	Members []string
	// Loss is what happens if all of them fail. It is "" if the group has stopped already.
	Loss Loss
	// Missing is what the group misses if it stops: Majority or EligibleMember.
	Missing string
}

// Nodes returns the nodes on which members are, and Zones the zones, in the order of their names.
func Nodes(g *v1.ElectionGroup) []Place { return places(g, nodeOf) }

// Zones returns the zones in which members are: see Nodes.
func Zones(g *v1.ElectionGroup) []Place { return places(g, zoneOf) }

func nodeOf(p *v1.Process) string { return p.Node }
func zoneOf(p *v1.Process) string { return p.Zone }

func places(g *v1.ElectionGroup, of func(*v1.Process) string) []Place {
	members := map[string][]string{}
	for i := range g.Status.Processes {
		p := &g.Status.Processes[i]
		if name := of(p); name != "" {
			members[name] = append(members[name], p.Pod)
		}
	}
	a := analyze(g)
	now, _ := a.loss()
	var all []Place
	for _, name := range slices.Sorted(maps.Keys(members)) {
		place := Place{Name: name, Members: members[name]}
		if now != Stops {
			place.Loss, place.Missing = a.loss(place.Members...)
		}
		all = append(all, place)
	}
	return all
}

// Intact returns the group as it is when all members are up and have adopted the newest list: its
// places show what the placement tolerates.
func Intact(g *v1.ElectionGroup) *v1.ElectionGroup {
	intact := &v1.ElectionGroup{Spec: g.Spec, Status: g.Status}
	intact.Status.Processes = slices.Clone(g.Status.Processes)
	for i := range intact.Status.Processes {
		p := &intact.Status.Processes[i]
		p.Status, p.Reason, p.Message = v1.ProcessNormal, "", ""
	}
	if list := g.Status.Protocol.MemberList; list != nil {
		intact.Status.Protocol.MemberList = &v1.MemberList{
			Version: list.Version, State: v1.ListSettled, Members: list.Members,
		}
	}
	return intact
}

// placeTolerance describes which nodes or zones a group can lose.
func placeTolerance(g *v1.ElectionGroup, kind string, of func(*v1.Process) string) []string {
	all := places(g, of)
	stops := map[string][]string{}
	for _, place := range all {
		switch {
		case place.Loss == "":
			return nil
		case place.Loss == Stops:
			stops[place.Missing] = append(stops[place.Missing], place.Name)
		}
	}
	// A member in an unknown place may share it with others.
	unknown := slices.ContainsFunc(g.Status.Processes, func(p v1.Process) bool { return isUp(&p) && of(&p) == "" })
	if len(stops) == 0 && !unknown {
		return []string{fmt.Sprintf("If any one %s fails, there is still a coordinator.", kind)}
	}
	var lines []string
	for _, missing := range slices.Sorted(maps.Keys(stops)) {
		names := JoinNames(stops[missing], "or")
		if kind == "zone" {
			names = "zone " + names
		}
		lines = append(lines, fmt.Sprintf("If %s fails: no %s.", names, missing))
	}
	return lines
}

// DownTogether returns a sentence if several members are down and all of them share a node or a
// zone, which other members that are up don't all share; else "".
func DownTogether(g *v1.ElectionGroup) string {
	count, node, zone := shared(g)
	who := "Both members that are down"
	if count > 2 {
		who = fmt.Sprintf("All %d members that are down", count)
	}
	switch {
	case node != "":
		return fmt.Sprintf("%s are on %s.", who, node)
	case zone != "":
		return fmt.Sprintf("%s are in zone %s.", who, zone)
	}
	return ""
}

// shared returns the number of members that are down and, if there are several, the node and the
// zone that all of them share, or "".
func shared(g *v1.ElectionGroup) (count int, node, zone string) {
	var up, down []*v1.Process
	for i := range g.Status.Processes {
		if p := &g.Status.Processes[i]; isUp(p) {
			up = append(up, p)
		} else {
			down = append(down, p)
		}
	}
	if len(down) < 2 {
		return len(down), "", ""
	}
	common := func(of func(*v1.Process) string) string {
		name := of(down[0])
		elsewhere := func(p *v1.Process) bool { return of(p) != name }
		if slices.ContainsFunc(down, elsewhere) || len(up) > 0 && !slices.ContainsFunc(up, elsewhere) {
			return ""
		}
		return name
	}
	return len(down), common(nodeOf), common(zoneOf)
}

// JoinNames formats names, as in "a, b and c", of which it shows the first few.
func JoinNames(names []string, word string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s %s %d more", strings.Join(names[:most], ", "), word, len(names)-most)
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " " + word + " " + names[last]
}
