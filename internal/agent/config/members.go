package config

import (
	"cmp"
	"math"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	maxMembers = 100
	maxVersion = math.MaxUint32
	maxFloor   = uint64(election.MaxTerm)
	// invalidPriority is the priority of a member whose own priority is invalid.
	invalidPriority = uint32(election.MaxPriority) + 1
)

// memberLines has the lines of the members in a group's lists.
type memberLines struct {
	members, previous []keyLines
	previousKeys      keyLines
	departed          []int
}

func (p *parser) members(to *[]control.Member, at *[]keyLines) valueReader {
	entries := p.list(maxMembers, func(_ string, n *yaml.Node) {
		m := control.Member{Priority: invalidPriority}
		fields := []field{
			{key: "name", read: p.text(&m.Name, CheckMemberName), required: true},
			{key: "priority", read: number(p, &m.Priority, 0, uint64(election.MaxPriority)), required: true},
			{key: "address", read: p.text(&m.Address, checkPeerAddress), required: !p.fromOperator},
		}
		if p.fromOperator {
			fields = append(fields, field{key: "uid", read: p.text(&m.UID, CheckUID)})
		}
		found := p.mapping("the member", n, fields...)
		*to = append(*to, m)
		*at = append(*at, found)
	})
	return func(key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			p.errorf(n.Line, "%s must contain at least one member", key)
		}
		entries(key, n)
	}
}

func (p *parser) readPrevious(g *Group, at *memberLines, key string, n *yaml.Node) {
	previous := &control.PreviousList{}
	g.List.Previous = previous
	at.previousKeys = p.mapping(key, n,
		field{key: "version", read: number(p, &previous.Version, 1, maxVersion), required: true},
		field{key: "members", read: p.members(&previous.Members, &at.previous), required: true},
		field{key: "leaseMillis", read: p.duration(&g.PreviousLease, time.Millisecond, 1, maxWaitMillis)},
	)
}

func (p *parser) departed(to *[]string, at *[]int) valueReader {
	return p.list(maxMembers, func(key string, n *yaml.Node) {
		var name string
		p.text(&name, CheckMemberName)(key, n)
		*to = append(*to, name)
		*at = append(*at, n.Line)
	})
}

// checkLists checks rules that involve several entries of a group's lists.
func (p *parser) checkLists(g *Group, at keyLines, lines *memberLines) {
	list := &g.List
	p.checkMembers(list.Members, at.at("members"), lines.members)
	if len(list.Departed) > 0 && list.Version != 1 && list.Floor == 0 && g.Safety.Mode != office.Available {
		p.errorf(at.at("departed"), "departed requires floor: stop the departed members, and then use the number that conclave-agent floor prints")
	}
	previous := list.Previous
	if list.Version == 1 {
		for _, key := range []string{"previous", "departed", "floor"} {
			if at.has(key) {
				p.errorf(at.at(key), "%s cannot be used with version 1, the first one: remove it, or set version", key)
			}
		}
		return
	}
	if previous == nil {
		p.checkDeparted(list.Departed, nil, lines.departed)
		return
	}
	p.checkMembers(previous.Members, lines.previousKeys.at("members"), lines.previous)
	p.checkDeparted(list.Departed, previous, lines.departed)
	if previous.Version > 0 && list.Version > 0 && previous.Version != list.Version-1 {
		p.errorf(lines.previousKeys.at("version"), "previous must be the list before this one, version %d, got %d",
			list.Version-1, previous.Version)
	}
}

func (p *parser) checkMembers(list []control.Member, line int, at []keyLines) {
	names, ranks := map[string]int{}, map[uint32]int{}
	var highest uint32
	for i, m := range list {
		if first, ok := names[m.Name]; ok && m.Name != "" {
			p.errorf(at[i].at("name"), "member %s is already defined in line %d", m.Name, first)
		} else {
			names[m.Name] = at[i].at("name")
		}
		if first, ok := ranks[m.Priority]; ok && m.Priority > 0 && m.Priority != invalidPriority {
			p.errorf(at[i].at("priority"), "priority %d is already used in line %d: priorities above 0 must be unique; a member with priority 0 is never elected",
				m.Priority, first)
		} else {
			ranks[m.Priority] = at[i].at("priority")
		}
		highest = max(highest, m.Priority)
	}
	if len(list) > 0 && highest == 0 {
		p.errorf(line, "at least one member must have a priority above 0: members with priority 0 are never elected")
	}
}

func (p *parser) checkDeparted(departed []string, previous *control.PreviousList, at []int) {
	seen := map[string]int{}
	for i, name := range departed {
		first, twice := seen[name]
		seen[name] = cmp.Or(first, at[i])
		switch {
		case name == "": // Its error is recorded.
		case twice:
			p.errorf(at[i], "%s is already listed in line %d", name, first)
		case previous != nil && !previous.Has(name):
			p.errorf(at[i], "departed must name members of previous, got %s", name)
		}
	}
}
