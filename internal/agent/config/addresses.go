package config

import "strings"

// entry is an address that the file gives to a name.
type addressEntry struct {
	name, group, address string
	line                 int
	// old: of a previous list. Its addresses may be others' by now.
	previous bool
}

// book are all addresses in the file.
type addressBook struct {
	entries []addressEntry
	groups  []groupEntry
}

// named is a group and the lines of its keys.
type groupEntry struct {
	name    string
	members []Member
	at      keyLines
}

func (b *addressBook) add(g *Group, at keyLines, of *memberLines) {
	b.groups = append(b.groups, groupEntry{g.Name, g.List.Members, at})
	note := func(list []Member, places []keyLines, old bool) {
		for i, m := range list {
			if m.Name != "" && m.Address != "" {
				b.entries = append(b.entries, addressEntry{m.Name, g.Name, m.Address, places[i].at("address"), old})
			}
		}
	}
	note(g.List.Members, of.members, false)
	if g.List.Previous != nil {
		note(g.List.Previous.Members, of.previous, true)
	}
}

// peers checks who is where: a name is one agent and an agent has one address,
// in whatever group.
func (p *parser) checkAddresses(c *Config, at keyLines, b *addressBook) {
	for _, g := range b.groups {
		if c.Self != "" && g.at.has("members") && len(g.members) > 0 && !(List{Members: g.members}).Has(c.Self) {
			p.errorf(g.at.at("members"), "self (%s) must be a member of every group: add it, or take this group out", c.Self)
		}
	}
	p.checkUniqueAddresses(b)
	p.checkOwnPort(c, b)
	if !c.TLS.Insecure {
		return
	}
	const remedy = "must be a loopback address such as 127.0.0.1:7401 with insecure: true, not %q: or name certificate files"
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
	of, at := map[string]addressEntry{}, map[string]addressEntry{}
	for _, e := range b.entries {
		first, ok := of[e.name]
		if !ok {
			of[e.name] = e
		} else if !strings.EqualFold(first.address, e.address) {
			p.errorf(e.line, "%s has the address %s in line %d: the same name is the same agent, at one address",
				e.name, first.address, first.line)
			continue
		}
		if e.previous {
			continue
		}
		address := strings.ToLower(e.address)
		if other, ok := at[address]; ok && other.name != e.name {
			p.errorf(e.line, "%s is the address of %s in line %d: each agent needs one of its own", e.address, other.name, other.line)
			continue
		}
		at[address] = e
	}
}

// checkOwnPort compares ports only: an agent may listen on all addresses, and
// be reached by a name.
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
			p.errorf(e.line, "%s must have the port of listen, %d, since it is self: not %d", e.name, listen.port, to.port)
		}
	}
}
