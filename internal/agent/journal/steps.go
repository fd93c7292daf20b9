package journal

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
)

// Clone returns a copy that another goroutine may read.
func (r *Ring) Clone() *Ring {
	clone := *r
	clone.repeats = repeats{}
	return &clone
}

// Omitted returns the number of entries that newer ones have replaced.
func (r *Ring) Omitted() uint64 { return r.next - min(r.next, size) }

// Steps returns the steps, oldest first. The first one is complete: the rest of a step whose
// input was overwritten is left out. at converts a tick to a time.
func (r *Ring) Steps(name func(election.ID) string, cause func(uint8) string, at func(election.Tick) time.Time) []journal.Step {
	steps := []journal.Step{}
	for i := r.Omitted(); i < r.next; i++ {
		e := &r.entries[i%size]
		if e.what == inputEntry {
			step := journal.Step{At: at(e.at), Input: election.InputKind(e.kind).String(), Peer: name(e.peer), Cause: cause(e.cause)}
			if e.message.kind != election.NoKind {
				m := r.export(&e.message, name)
				step.Message = &m
			}
			steps = append(steps, step)
			continue
		}
		if len(steps) == 0 {
			continue
		}
		step := &steps[len(steps)-1]
		if e.what == sentEntry {
			step.Sent = append(step.Sent, r.export(&e.message, name))
			continue
		}
		step.Events = append(step.Events, journal.Event{
			Kind: election.EventKind(e.kind).String(), Peer: name(e.peer), Term: uint64(e.term), Token: uint64(e.token),
		})
	}
	return steps
}

func (r *Ring) export(m *message, name func(election.ID) string) journal.Message {
	exported := journal.Message{
		Kind: m.kind.String(), From: name(m.from), To: name(m.to), Term: uint64(m.term), Lamport: m.lamport, Life: m.life,
		Subject: name(m.subject), Origin: name(m.origin), Hops: m.hops, Held: m.held, Ready: m.ready, Ineligible: m.ineligible,
	}
	if r.nextList-m.listStart > listSize {
		return exported // Newer lists have replaced this one.
	}
	for i := range uint64(m.listLength) {
		exported.List = append(exported.List, name(r.lists[(m.listStart+i)%listSize]))
	}
	return exported
}
