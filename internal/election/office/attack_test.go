package office_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// attack is a group in which the test plays a member that sends what it likes, to all others.
type attack struct {
	*group

	random *rand.Rand
	// id is the attacker, and known are the messages that it has received.
	id    election.ID
	known []election.Message
	// beat is the last BEAT of a coordinator among them.
	beat election.Message
	// term is that of attacks that always use the same one.
	term election.Term
	// list is that of the group. newer: the attacker names newer ones, too.
	list  *election.Roster
	newer bool
	// grantedUntil is, by ID, until when a process has granted the attacker the office.
	grantedUntil map[election.ID]election.Tick
}

const (
	// attackSize is the number of processes. Most of them are honest and remain when the coordinator has crashed and one
	// of the others has granted the attacker the office.
	attackSize  = 7
	attackLease = second / 2
	// attackInterval is the time between two attacks on each process.
	attackInterval election.Tick = 10
	// newerLists is the seed with which the attacker names newer lists.
	newerLists = 2
)

// startAttack starts a group, of which one is the attacker.
func startAttack(t *testing.T, mode office.Mode, name string, by election.Member, seed uint64) *attack {
	t.Helper()
	g, id := newGroupOfSeconds(t, mode), by.ID
	a := &attack{
		group: g, random: rand.New(rand.NewPCG(seed, uint64(id))), id: id, grantedUntil: map[election.ID]election.Tick{},
		newer: seed == newerLists,
	}
	g.capture = func(m *election.Message) bool {
		if m.To == id {
			a.see(m)
		}
		return m.To == id
	}
	var ring []election.Member
	for other := election.ID(1); other <= attackSize; other++ {
		ring = append(ring, election.Member{ID: other, Priority: election.Priority(other)})
	}
	ring[id-1] = by
	roster, err := election.NewRoster(1, ring)
	must.Succeed(t, err)
	a.list = roster
	algorithm, err := catalog.Find(name)
	must.Succeed(t, err)
	leader := election.ID(attackSize)
	if id == leader {
		leader--
	}
	for _, m := range ring {
		if m.ID != id {
			g.start(m.ID, roster, func(c *office.Config) {
				c.MemoryLost, c.Term, c.Coordinator, c.NewElection = false, term(1), leader, algorithm.New
			})
		}
	}
	g.advance(10)
	g.wantHolder(leader)
	return a
}

// see records a message to the attacker.
func (a *attack) see(m *election.Message) {
	a.captured = nil
	a.known = append(a.known[max(0, len(a.known)-199):], *m)
	switch {
	case m.Kind == election.Beat && m.Hold.Held:
		a.beat = *m
	case m.Kind == election.Grant:
		a.grantedUntil[m.From] = a.now + attackLease
	}
}

// holds reports whether a majority has granted the attacker the office. It is
// coordinator then, whatever it does with the office.
func (a *attack) holds() bool {
	n := 1
	if a.mode == office.Available {
		for _, m := range a.machines {
			if m != nil && m.Status().Coordinator == a.id {
				return true
			}
		}
		return false
	}
	for _, until := range a.grantedUntil {
		if a.now < until {
			n++
		}
	}
	return n > attackSize/2
}

// attack sends messages to all processes for some time. It returns for how long nobody
// held the office, and whether another process than the attacker holds it at the end.
func (a *attack) attack(craft func(*attack, election.ID) election.Message, limit election.Tick,
	until func() bool,
) (vacant election.Tick, ok bool) {
	a.t.Helper()
	for end := a.now + limit; a.now < end; {
		if a.now%attackInterval == 0 {
			for id, m := range a.machines {
				if m != nil {
					a.deliver(craft(a, election.ID(id)))
					a.deliverAll()
				}
			}
		}
		if until != nil && until() {
			return vacant, true
		}
		if len(a.holders()) == 0 && !a.holds() {
			vacant++
			a.publishNext()
		}
		a.advance(1)
	}
	return vacant, false
}

// publishNext publishes the next list, as the operator does, if half of the terms of the present one are used up, or if
// no majority is left that can grant them. The attacker reports that it has granted nothing.
func (a *attack) publishNext() {
	a.t.Helper()
	highest, reported := election.Term(0), make([]election.Term, 1, attackSize)
	for _, m := range a.machines {
		if m == nil {
			continue
		}
		term := m.UsedTerm()
		if term.Version() == a.list.Version {
			highest = max(highest, term)
		}
		reported = append(reported, term)
	}
	slices.Sort(reported)
	highest = max(highest, reported[attackSize/2])
	if highest < election.FirstTerm(a.list.Version)+1<<15 {
		return
	}
	list, err := election.NewRoster(highest.Version()+1, a.list.Ring())
	must.Succeed(a.t, err)
	a.list = list.Succeed(a.list)
	for id, m := range a.machines {
		if m != nil {
			a.adopt(a.list, election.ID(id))
		}
	}
}

// aheads are differences of terms: some that are valid, and the limits of what is reserved and accepted.
var aheads = []election.Term{0, 1, 2, 3, 10, 31, 32, 33, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 10_000}

// message returns a BEAT of the attacker in a term relative to the coordinator's, or to the first or the last one of a
// list.
func (a *attack) message(to election.ID, change func(*election.Message)) election.Message {
	m := a.beat
	m.From, m.To, m.Subject, m.List = a.id, to, a.id, nil
	if m.Kind == election.NoKind {
		m.Kind = election.Beat
	}
	m.Hold.Life, m.Hold.Sent, m.Hold.Version = 1, a.now, a.list.Version
	if a.newer && a.coin() {
		m.Hold.Version += pick(a, []uint32{1, 2, 1000})
	}
	if m.Hold.Version > a.list.Version || a.coin() {
		m.Term = pick(a, []election.Term{election.FirstTerm(m.Hold.Version), election.LastTerm(m.Hold.Version) - 1})
	}
	m.Term = min(m.Term+pick(a, aheads), election.LastTerm(m.Hold.Version))
	change(&m)
	return m
}

func pick[T any](a *attack, from []T) T { return from[a.random.IntN(len(from))] }

func (a *attack) coin() bool { return a.random.IntN(2) == 0 }

func (a *attack) anyID() election.ID { return election.ID(1 + a.random.IntN(attackSize)) }

// lifeOf is the incarnation of a process: no process of an attack restarts.
const lifeOf = 1

// attacks are what the attacker sends, by name.
var attacks = map[string]func(*attack, election.ID) election.Message{
	"tenures": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) { m.Hold.Held = true })
	},
	"claims": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) { m.Hold.Held = false })
	},
	"tenures and claims": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) { m.Hold.Held = a.coin() })
	},
	"tenures that one member grants": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) {
			a.term = cmp.Or(a.term, m.Term)
			m.Term, m.Hold.Held, m.Hold.Version = a.term, true, 0
			if to == 2 {
				m.Hold.Version = 1
			}
		})
	},
	"claims of the last term": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) {
			m.Term, m.Hold.Held = election.LastTerm(m.Hold.Version), false
		})
	},
	"claims under an old list": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) {
			m.Hold.Held, m.Hold.Version = false, 0
		})
	},
	"refusals": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) {
			m.Kind, m.Hold.HighestGranted, m.Hold.RequesterLife, m.Subject = election.Deny, m.Term, lifeOf, a.anyID()
		})
	},
	"grants": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) {
			m.Kind, m.Hold.HighestGranted, m.Hold.RequesterLife, m.Hold.Ready = election.Grant, m.Term, lifeOf, true
		})
	},
	"answers to probes": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) {
			m.Kind, m.Subject, m.Hold.Held, m.Hold.HighestGranted, m.Hold.RequesterLife = election.Probe,
				a.anyID(), true, m.Term, lifeOf
		})
	},
	"probes": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) { m.Kind, m.Subject, m.Hold.Held = election.Probe, a.anyID(), false })
	},
	"answers in the name of coordinators": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) {
			m.Kind, m.Subject, m.Hold.Held, m.Hold.RequesterLife = election.Probe, a.id, true, lifeOf
			m.Term -= min(m.Term, 20)
		})
	},
	"elections": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) {
			m.Kind, m.Subject, m.Origin = pick(a, election.Kinds()), a.anyID(), a.anyID()
		})
	},
	"resignations": func(a *attack, to election.ID) election.Message {
		return a.message(to,
			func(m *election.Message) { m.Kind, m.Subject, m.Hold.Held = election.Resigned, a.anyID(), a.coin() })
	},
	"tenures and resignations": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) {
			m.Hold.Held = true
			if a.random.IntN(10) == 0 {
				m.Kind, m.Subject = election.Resigned, a.anyID()
			}
		})
	},
	"names of coordinators": func(a *attack, to election.ID) election.Message {
		kinds := []election.Kind{election.Coordinator, election.Table, election.Reply, election.NewCoordinator}
		return a.message(to,
			func(m *election.Message) { m.Kind, m.Subject, m.Hold.Held = pick(a, kinds), a.anyID(), a.coin() })
	},
	"suspicions": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) { m.Hold.Held, m.List = true, []election.ID{1, 2, 3, 4, 5, 6, 7} })
	},
	"replays": func(a *attack, to election.ID) election.Message {
		if len(a.known) == 0 {
			return a.message(to, a.randomize)
		}
		m := pick(a, a.known)
		m.From, m.To = a.id, to
		return m
	},
	"other incarnations": func(a *attack, to election.ID) election.Message {
		return a.message(to, func(m *election.Message) { m.Hold.Life, m.Hold.Held = a.random.Uint32N(9), a.coin() })
	},
	"anything": func(a *attack, to election.ID) election.Message { return a.message(to, a.randomize) },
}

// randomize changes all fields of a message.
func (a *attack) randomize(m *election.Message) {
	kinds := append(election.Kinds(), election.Beat, election.Grant, election.Deny, election.Resigned, election.Probe)
	m.Kind, m.Subject, m.Origin, m.Hops = pick(a, kinds), a.anyID(), a.anyID(), a.random.Uint32N(8)
	m.Lamport = a.beat.Lamport + a.random.Uint64N(100)
	for range a.random.IntN(6) {
		m.List = append(m.List, a.anyID())
	}
	h := &m.Hold
	h.Sent, h.RequesterLife = a.now-election.Tick(a.random.Int64N(1000)), a.random.Uint32N(2)
	h.HighestGranted = m.Term + pick(a, aheads) - 3
	h.Held, h.Ready, h.Ineligible = a.coin(), a.coin(), a.coin()
	h.Settled, h.Abstains = a.coin(), a.coin()
	if a.coin() {
		h.Version = a.random.Uint32N(3)
	}
}

// attackers are members by which a group is attacked: of the lowest and of the highest rank, and one that can't be
// elected.
var attackers = []election.Member{
	{ID: 1, Priority: 1}, {ID: attackSize, Priority: attackSize}, {ID: attackSize, Priority: 0},
}

// The coordinator crashes while a member sends false messages. Unless a majority grants the office to the attacker, as
// it may to any member, another process gets it within a few leases. (Available: unless the others follow the
// attacker.)
func TestMemberCannotPreventElection(t *testing.T) {
	const vacantMax = 6 * attackLease
	algorithms := catalog.Names()
	for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
		for i, kind := range slices.Sorted(maps.Keys(attacks)) {
			t.Run(mode.String()+"/"+kind, func(t *testing.T) {
				for j, by := range attackers {
					for seed := range newerLists + 1 {
						if testing.Short() && seed != (i+j)%(newerLists+1) {
							continue
						}
						algorithm := algorithms[(i+j+seed)%len(algorithms)]
						what := fmt.Sprintf("%s, attacked by %d of priority %d, seed %d", algorithm, by.ID, by.Priority, seed)
						a := startAttack(t, mode, algorithm, by, uint64(seed))
						leader := a.holders()[0]
						vacant, _ := a.attack(attacks[kind], second, nil)
						// In Available mode nobody refuses a coordinator of higher rank, or doubts a report that the term is too low.
						if mode != office.Available && (vacant > 0 || !slices.Equal(a.holders(), []election.ID{leader})) {
							t.Errorf("%s: got no coordinator for %d ms, and then %d, want %d to remain", what, vacant, a.holders(), leader)
						}
						a.crash(leader, seed == 0)
						vacant, elected := a.attack(attacks[kind], 20*second, func() bool { return len(a.holders()) > 0 })
						if !elected && by.Priority == 0 || vacant > vacantMax {
							t.Errorf("%s: got no coordinator for %d ms after the crash, then one %t, want one within %d ms", what,
								vacant, elected, vacantMax)
						}
						tenures := len(a.tokens)
						vacant, _ = a.attack(attacks[kind], 10*second, nil)
						if mode != office.Available && seed != newerLists && a.list.Version > 1 {
							t.Errorf("%s: the terms of %d lists were used up, want no new list", what, a.list.Version)
						}
						if n := election.Tick(len(a.tokens) - tenures); vacant > vacantMax || n > 10*second/attackLease {
							t.Errorf("%s: got no coordinator for %d of ten seconds and %d tenures, want less than %d ms and %d tenures",
								what, vacant, n, vacantMax, 10*second/attackLease)
						}
					}
				}
			})
		}
	}
}
