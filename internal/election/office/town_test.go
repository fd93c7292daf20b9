package office_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// The times of the towns, in ticks.
const (
	lease     election.Tick = 100
	heartbeat election.Tick = 20
	patience  election.Tick = 45
	stagger   election.Tick = 10
	drain     election.Tick = 15
	stable    election.Tick = 200
)

// town is a handful of processes whose messages the test delivers. What isn't
// cut or kept arrives at once.
type town struct {
	t     *testing.T
	mode  office.Mode
	at    election.Tick
	all   [101]*office.Machine // by ID, nil when down
	lives [101]uint32
	// cut says which messages are lost, keep which ones go to kept.
	cut, keep func(*election.Message) bool
	mail      []election.Message
	kept      []election.Message
	told      []fact
	// busy: applications don't stop by themselves when they are asked to.
	busy bool
	// tokens of all tenures, in order.
	tokens []election.Token
	// tuned changes what processes start from.
	tuned func(*office.Config)
	// split is what the test expects not to happen.
	split bool
}

type fact struct {
	id    election.ID
	event election.Event
}

func list(t *testing.T, version uint32, ids ...election.ID) *election.Roster {
	t.Helper()
	ring := make([]election.Member, len(ids))
	for i, id := range ids {
		ring[i] = election.Member{ID: id, Priority: election.Priority(id)}
	}
	r, err := election.NewRoster(version, ring)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// settle starts a town in which everyone agrees on leader, in term 1.
func settle(
	t *testing.T, mode office.Mode, leader election.ID, roster *election.Roster, tune func(*office.Config),
) *town {
	t.Helper()
	w := &town{t: t, mode: mode, tuned: tune}
	w.agree(leader, roster)
	return w
}

// agree starts everyone on roster, in agreement on leader.
func (w *town) agree(leader election.ID, roster *election.Roster) {
	w.t.Helper()
	for _, m := range roster.Ring() {
		w.start(m.ID, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 1, leader })
	}
	w.pass(1)
}

// start begins a life of a process, without memory unless tune says otherwise.
func (w *town) start(id election.ID, roster *election.Roster, tune func(*office.Config)) {
	w.t.Helper()
	w.lives[id]++
	bully, err := catalog.Find("Bully")
	if err != nil {
		w.t.Fatal(err)
	}
	c := office.Config{
		Config:      election.Config{Self: id, Roster: roster, Timing: election.DefaultTiming(1, 0)},
		NewElection: bully.New, Mode: w.mode, Lease: lease, Heartbeat: heartbeat, SuspicionTimeout: patience, Stagger: stagger,
		Policy: office.NeverPreempt, StablePeriod: stable, DrainTimeout: drain, Life: w.lives[id], MemoryLost: true, Start: w.at,
	}
	if w.tuned != nil {
		w.tuned(&c)
	}
	if tune != nil {
		tune(&c)
	}
	m, err := office.New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.all[id] = m
}

// crash ends a process; noticed, everyone is told that it is gone.
func (w *town) crash(id election.ID, noticed bool) {
	w.t.Helper()
	w.all[id] = nil
	if !noticed {
		return
	}
	for other := range w.all {
		if w.all[other] != nil {
			w.step(election.ID(other), election.Input{Kind: election.Ended, Peer: id, Life: w.lives[id]})
		}
	}
	w.deliver()
}

// step gives one input to a process, and checks what must always hold.
func (w *town) step(id election.ID, in election.Input) {
	w.t.Helper()
	in.Now = w.at
	var out election.Output
	w.all[id].Step(in, &out)
	w.mail = append(w.mail, out.Send...)
	for _, e := range out.Events {
		w.told = append(w.told, fact{id, e})
		switch {
		case e.Kind == election.TenureStarted:
			w.tokens = append(w.tokens, e.Token)
		case e.Kind == election.StopRequested && !w.busy:
			w.step(id, election.Input{Kind: election.Stopped, Term: e.Term})
		}
	}
	if w.mode == office.Available {
		return
	}
	if h := w.holders(); len(h) > 1 && !w.split {
		w.split = true
		w.t.Errorf("at %d processes %d hold the office at once", w.at, h)
	}
	for i := 1; i < len(w.tokens); i++ {
		if w.tokens[i] <= w.tokens[i-1] {
			w.t.Fatalf("at %d token %d follows token %d", w.at, w.tokens[i], w.tokens[i-1])
		}
	}
}

// deliver lets everything arrive that is on its way, and what follows from it.
func (w *town) deliver() {
	w.t.Helper()
	for n := 0; len(w.mail) > 0; n++ {
		if n > 10000 {
			w.t.Fatalf("at %d messages cause messages for ever", w.at)
		}
		m := w.mail[0]
		w.mail = w.mail[1:]
		switch {
		case w.cut != nil && w.cut(&m):
		case w.keep != nil && w.keep(&m):
			w.kept = append(w.kept, m)
		default:
			w.arrive(m)
		}
	}
}

// arrive lets one message arrive now.
func (w *town) arrive(m election.Message) {
	w.t.Helper()
	if w.all[m.To] != nil {
		w.step(m.To, election.Input{Kind: election.Receive, Message: m})
	}
}

// pass lets time go by for a number of ticks.
func (w *town) pass(ticks election.Tick) {
	w.t.Helper()
	w.deliver()
	for range ticks {
		w.at++
		for id, m := range w.all {
			for n := 0; m != nil && m.Deadline() <= w.at; n++ {
				if n > 100 {
					w.t.Fatalf("at %d process %d asks for a tick for ever", w.at, id)
				}
				w.step(election.ID(id), election.Input{Kind: election.TimePassed})
				w.deliver()
			}
		}
	}
}

// tell gives one input to a process, and delivers what follows from it.
func (w *town) tell(id election.ID, in election.Input) {
	w.t.Helper()
	w.step(id, in)
	w.deliver()
}

func (w *town) adopt(r *election.Roster, ids ...election.ID) {
	w.t.Helper()
	for _, id := range ids {
		w.tell(id, election.Input{Kind: election.Adopt, Roster: r})
	}
}

// holders are who may act as coordinator now.
func (w *town) holders() (ids []election.ID) {
	for id, m := range w.all {
		if m == nil {
			continue
		}
		if s := m.Status(); s.Token != 0 && w.at < s.Until {
			ids = append(ids, election.ID(id))
		}
	}
	return ids
}

// wantHolder checks who holds the office; with None, that nobody does.
func (w *town) wantHolder(want election.ID) {
	w.t.Helper()
	var ids []election.ID
	if want != election.None {
		ids = append(ids, want)
	}
	if got := w.holders(); !slices.Equal(got, ids) {
		w.t.Errorf("at %d processes %d hold the office, want %d", w.at, got, ids)
	}
}

// wantFollowed checks that all of ids know who leads.
func (w *town) wantFollowed(leader election.ID, ids ...election.ID) {
	w.t.Helper()
	for _, id := range ids {
		if got := w.all[id].Status().Coordinator; got != leader {
			w.t.Errorf("at %d process %d follows %d, want %d", w.at, id, got, leader)
		}
	}
}

// count is how often a process told of a kind of event.
func (w *town) count(id election.ID, kind election.EventKind) (n int) {
	for _, f := range w.told {
		if f.id == id && f.event.Kind == kind {
			n++
		}
	}
	return n
}

func between(m *election.Message, side ...election.ID) bool {
	return slices.Contains(side, m.From) != slices.Contains(side, m.To)
}
