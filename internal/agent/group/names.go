package group

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/wire"
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

// message reads a letter. It reports false if that names somebody unknown, or
// would make the logical clocks overflow.
func (n *names) message(from string, l *wire.Letter, self election.ID) (election.Message, bool) {
	m := election.Message{
		Kind: l.Kind, To: self, Term: l.Term, Lamport: l.Lamport, Hops: l.Hops, Hold: l.Hold,
	}
	known := l.Lamport < lamportMax
	number := func(name string) election.ID {
		id, ok := n.ids[name]
		known = known && ok
		return id
	}
	m.From, m.Subject, m.Origin = number(from), number(l.Subject), number(l.Origin)
	for _, name := range l.List {
		m.List = append(m.List, number(name))
	}
	return m, known
}

// letter writes a message.
func (n *names) letter(m *election.Message) *wire.Letter {
	l := &wire.Letter{
		Kind: m.Kind, Term: m.Term, Lamport: m.Lamport, Hops: m.Hops, Hold: m.Hold,
		Subject: n.of(m.Subject), Origin: n.of(m.Origin),
	}
	for _, id := range m.List {
		l.List = append(l.List, n.of(id))
	}
	return l
}

// digest tells lists of the same version apart.
func digest(list config.List) uint64 {
	h := fnv.New64a()
	var number [4]byte
	for _, m := range list.Members {
		binary.LittleEndian.PutUint32(number[:], uint32(m.Priority))
		_, _ = h.Write([]byte(m.Name)) // A hash takes everything.
		_, _ = h.Write(number[:])
	}
	return h.Sum64()
}
