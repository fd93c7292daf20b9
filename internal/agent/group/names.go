package group

import (
	"encoding/binary"
	"hash"
	"hash/fnv"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// names gives the members the numbers by which the Machine knows them. A name
// keeps its number as long as the process lives.
type names struct {
	byID []string // [0] is nobody
	ids  map[string]election.ID
}

func newNames() *names {
	return &names{byID: []string{""}, ids: map[string]election.ID{"": election.None}}
}

func (n *names) add(name string) election.ID {
	id, known := n.ids[name]
	if !known {
		id = election.ID(len(n.byID))
		n.byID = append(n.byID, name)
		n.ids[name] = id
	}
	return id
}

func (n *names) of(id election.ID) string {
	if int(id) >= len(n.byID) {
		return ""
	}
	return n.byID[id]
}

// roster is the list as the Machine knows it.
func (n *names) roster(list config.List) (*election.Roster, error) {
	roster, err := election.NewRoster(list.Version, n.members(list))
	if err != nil || list.Previous == nil {
		return roster, err
	}
	previous, err := election.NewRoster(list.Previous.Version, n.members(*list.Previous))
	if err != nil {
		return nil, err
	}
	var departed []election.ID
	for _, name := range list.Departed {
		departed = append(departed, n.add(name))
	}
	return roster.Succeed(previous, list.Floor, departed...), nil
}

func (n *names) members(list config.List) []election.Member {
	var members []election.Member
	for _, m := range list.Members {
		members = append(members, election.Member{ID: n.add(m.Name), Priority: m.Priority})
	}
	return members
}

// lamportMax is a reading that no logical clock comes to by itself.
const lamportMax = 1 << 60

// message reads a letter. It reports false if that would make the logical clocks
// overflow, or names somebody unknown on whom the election depends. That the
// coordinator suspects a member of a newer list, or resigns in its favour, is
// nothing to stop listening for.
func (n *names) message(from string, l *wire.Message, self election.ID) (election.Message, bool) {
	m := election.Message{
		Kind: l.Kind, To: self, Term: l.Term, Lamport: l.Lamport, Hops: l.Hops, Hold: l.Hold,
	}
	known := l.Lamport < lamportMax
	number := func(name string) election.ID {
		id, ok := n.ids[name]
		known = known && ok
		return id
	}
	m.From, m.Origin = number(from), number(l.Origin)
	if l.Kind == election.Resigned {
		m.Subject = n.ids[l.Subject]
	} else {
		m.Subject = number(l.Subject)
	}
	for _, name := range l.List {
		if _, newer := n.ids[name]; !newer && l.Kind == election.Beat {
			continue
		}
		m.List = append(m.List, number(name))
	}
	return m, known
}

// letter writes a message.
func (n *names) letter(m *election.Message) *wire.Message {
	l := &wire.Message{
		Kind: m.Kind, Term: m.Term, Lamport: m.Lamport, Hops: m.Hops, Hold: m.Hold,
		Subject: n.of(m.Subject), Origin: n.of(m.Origin),
	}
	for _, id := range m.List {
		l.List = append(l.List, n.of(id))
	}
	return l
}

// digest tells lists of the same version apart, with the list before: it has a
// say, too, unless nobody grants anything.
func digest(list config.List, mode office.Mode) uint64 {
	h := fnv.New64a()
	add(h, list)
	if list.Previous != nil && mode != office.Available {
		add(h, *list.Previous)
	}
	return h.Sum64()
}

func add(h hash.Hash, list config.List) {
	b := binary.LittleEndian.AppendUint32(nil, list.Version)
	for _, m := range list.Members {
		b = append(b, m.Name...)
		b = binary.LittleEndian.AppendUint32(b, uint32(m.Priority))
	}
	_, _ = h.Write(b) // A hash takes everything.
}

// charter tells apart what members must agree on whatever their lists: how long
// a grant lasts for the one who gives it and for the one who has it, and which
// group of a name it is about. What an operator gives out may change from Majority
// to Strict under way: then members of both go by what Majority promises.
func charter(of config.Group) uint64 {
	mode := of.Safety.Mode
	if of.UID != "" && mode == office.Strict {
		mode = office.Majority
	}
	h := fnv.New64a()
	b := binary.LittleEndian.AppendUint64([]byte{byte(mode)}, uint64(of.Safety.Lease))
	_, _ = h.Write(append(b, of.UID...))
	return h.Sum64()
}
