package group

import (
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// names maps the names of members to the identifiers that the machine uses. A name
// retains its identifier until the group is left.
type names struct {
	byID []string // byID[election.None] is empty
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

func (n *names) name(id election.ID) string {
	if int(id) >= len(n.byID) {
		return ""
	}
	return n.byID[id]
}

func (n *names) roster(list control.List) (*election.Roster, error) {
	roster, err := election.NewRoster(list.Version, n.members(list.Members))
	if err != nil || list.Previous == nil {
		return roster, err
	}
	previous, err := election.NewRoster(list.Previous.Version, n.members(list.Previous.Members))
	if err != nil {
		return nil, err
	}
	var departed []election.ID
	for _, name := range list.Departed {
		departed = append(departed, n.add(name))
	}
	return roster.Succeed(previous, election.Term(list.Floor), departed...), nil
}

func (n *names) members(listed []control.Member) []election.Member {
	var members []election.Member
	for _, m := range listed {
		members = append(members, election.Member{ID: n.add(m.Name), Priority: election.Priority(m.Priority)})
	}
	return members
}

// lamportMax is higher than any value that a logical clock can reach by counting.
const lamportMax = 1 << 60

// decode converts a received message. It returns false if the message would make the
// logical clock overflow, or names an unknown member. There are two exceptions: the
// coordinator may already have adopted a newer member list. A BEAT in which it
// suspects a new member, and a RESIGNED that names a new member as successor, are
// valid without that name.
func (n *names) decode(from string, message *wire.Message, self election.ID) (election.Message, bool) {
	m := election.Message{
		Kind: message.Kind, To: self, Term: message.Term, Lamport: message.Lamport, Hops: message.Hops, Hold: message.Hold,
	}
	known := message.Lamport < lamportMax
	identifier := func(name string) election.ID {
		id, ok := n.ids[name]
		known = known && ok
		return id
	}
	m.From, m.Origin = identifier(from), identifier(message.Origin)
	if message.Kind == election.Resigned {
		m.Subject = n.ids[message.Subject]
	} else {
		m.Subject = identifier(message.Subject)
	}
	for _, name := range message.List {
		if _, listed := n.ids[name]; !listed && message.Kind == election.Beat {
			continue
		}
		m.List = append(m.List, identifier(name))
	}
	return m, known
}

func (n *names) encode(m *election.Message) *wire.Message {
	message := &wire.Message{
		Kind: m.Kind, Term: m.Term, Lamport: m.Lamport, Hops: m.Hops, Hold: m.Hold,
		Subject: n.name(m.Subject), Origin: n.name(m.Origin),
	}
	for _, id := range m.List {
		message.List = append(message.List, n.name(id))
	}
	return message
}
