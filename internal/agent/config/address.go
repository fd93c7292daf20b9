package config

import "strings"

// entry is an address that the file gives to a name.
type entry struct {
	name, group, address string
	line                 int
	// old: of a previous list. Its addresses may be others' by now.
	old bool
}

// book are all addresses in the file.
type book struct {
	entries []entry
	groups  []named
}

// named is a group and the lines of its keys.
type named struct {
	name    string
	members []Member
	at      lines
}

func (b *book) enter(g *Group, at lines, of *entries) {
	b.groups = append(b.groups, named{g.Name, g.List.Members, at})
	note := func(list []Member, places []lines, old bool) {
		for i, m := range list {
			if m.Name != "" && m.Address != "" {
				b.entries = append(b.entries, entry{m.Name, g.Name, m.Address, places[i].at("address"), old})
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
func (p *page) peers(c *Config, at lines, b *book) {
	for _, g := range b.groups {
		if c.Self != "" && g.at.has("members") && len(g.members) > 0 && !(List{Members: g.members}).Has(c.Self) {
			p.complain(g.at.at("members"), "self (%s) must be a member of every group: add it, or take this group out", c.Self)
		}
	}
	p.oneAddressEach(b)
	p.onePortForSelf(c, b)
	if !c.TLS.Insecure {
		return
	}
	const remedy = "must be a loopback address such as 127.0.0.1:7401 with insecure: true, not %q: or name certificate files"
	if listen, err := splitAddress(c.Listen); err == nil && !listen.local() {
		p.complain(at.at("listen"), "listen "+remedy, c.Listen)
	}
	for _, e := range b.entries {
		if to, err := splitAddress(e.address); err == nil && !to.local() {
			p.complain(e.line, "address "+remedy, e.address)
		}
	}
}

func (p *page) oneAddressEach(b *book) {
	of, at := map[string]entry{}, map[string]entry{}
	for _, e := range b.entries {
		first, ok := of[e.name]
		if !ok {
			of[e.name] = e
		} else if !strings.EqualFold(first.address, e.address) {
			p.complain(e.line, "%s has the address %s in line %d: the same name is the same agent, at one address",
				e.name, first.address, first.line)
			continue
		}
		if e.old {
			continue
		}
		address := strings.ToLower(e.address)
		if other, ok := at[address]; ok && other.name != e.name {
			p.complain(e.line, "%s is the address of %s in line %d: each agent needs one of its own", e.address, other.name, other.line)
			continue
		}
		at[address] = e
	}
}

// onePortForSelf compares ports only: an agent may listen on all addresses, and
// be reached by a name.
func (p *page) onePortForSelf(c *Config, b *book) {
	listen, err := splitAddress(c.Listen)
	if err != nil {
		return
	}
	for _, e := range b.entries {
		if e.name != c.Self || e.old {
			continue
		}
		if to, err := splitAddress(e.address); err == nil && to.port != listen.port {
			p.complain(e.line, "%s must have the port of listen, %d, since it is self: not %d", e.name, listen.port, to.port)
		}
	}
}
