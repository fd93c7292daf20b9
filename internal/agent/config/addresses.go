package config

import (
	"strings"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// addressEntry is an address that the file assigns to a member.
type addressEntry struct {
	name, group, address string
	line                 int
	// previous is true for an entry of a previous list. Other members may use its
	// address by now.
	previous bool
}

// addressBook holds all member addresses in the file.
type addressBook struct {
	entries []addressEntry
	groups  []groupEntry
}

// groupEntry is a group with the lines of its keys.
type groupEntry struct {
	name    string
	members []control.Member
	at      keyLines
}

func (b *addressBook) add(g *Group, at keyLines, lines *memberLines) {
	b.groups = append(b.groups, groupEntry{g.Name, g.List.Members, at})
	addList := func(list []control.Member, at []keyLines, previous bool) {
		for i, m := range list {
			if m.Name != "" && m.Address != "" {
				b.entries = append(b.entries, addressEntry{m.Name, g.Name, m.Address, at[i].at("address"), previous})
			}
		}
	}
	addList(g.List.Members, lines.members, false)
	if g.List.Previous != nil {
		addList(g.List.Previous.Members, lines.previous, true)
	}
}

// checkAddresses checks the addresses across groups: self is a member of every
// group, and names and addresses correspond one to one.
func (p *parser) checkAddresses(c *Config, at keyLines, b *addressBook) {
	for _, g := range b.groups {
		if c.Self != "" && g.at.has("members") && len(g.members) > 0 && !(&control.List{Members: g.members}).Has(c.Self) {
			p.errorf(g.at.at("members"), "self (%s) must be a member of every group: add it, or remove this group", c.Self)
		}
	}
	p.checkUniqueAddresses(b)
	p.checkOwnPort(c, b)
	if !c.TLS.Insecure {
		return
	}
	const remedy = "must be a loopback address such as 127.0.0.1:7401 with insecure: true, got %q: or specify certificate files"
	if listen, err := parseEndpoint(c.Listen); err == nil && !listen.loopback() {
		p.errorf(at.at("listen"), "listen "+remedy, c.Listen)
	}
	for _, e := range b.entries {
		if to, err := parseEndpoint(e.address); err == nil && !to.loopback() {
			p.errorf(e.line, "address "+remedy, e.address)
		}
	}
}

func (p *parser) checkUniqueAddresses(b *addressBook) {
	byName, byAddress := map[string]addressEntry{}, map[string]addressEntry{}
	for _, e := range b.entries {
		first, ok := byName[e.name]
		if !ok {
			byName[e.name] = e
		} else if !strings.EqualFold(first.address, e.address) {
			p.errorf(e.line, "%s must have the address %s as in line %d, got %s: a name denotes one agent at one address",
				e.name, first.address, first.line, e.address)
			continue
		}
		if e.previous {
			continue
		}
		address := strings.ToLower(e.address)
		if other, ok := byAddress[address]; ok && other.name != e.name {
			p.errorf(e.line, "%s is already the address of %s in line %d: each agent needs its own address", e.address, other.name, other.line)
			continue
		}
		byAddress[address] = e
	}
}

// checkOwnPort checks that self's address has the port of listen. It compares
// ports only: an agent may listen on all addresses and be reached by a host name.
func (p *parser) checkOwnPort(c *Config, b *addressBook) {
	listen, err := parseEndpoint(c.Listen)
	if err != nil {
		return
	}
	for _, e := range b.entries {
		if e.name != c.Self || e.previous {
			continue
		}
		if to, err := parseEndpoint(e.address); err == nil && to.port != listen.port {
			p.errorf(e.line, "the address of %s (self) must have the port of listen, %d, got %d", e.name, listen.port, to.port)
		}
	}
}
