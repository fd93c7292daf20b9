package group

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
)

// answers measures how long members take to answer the heartbeats of this process while it is
// coordinator. An answer returns the moment at which the heartbeat was sent, so no clock of
// another machine matters. The time includes what both agents spend waiting for a CPU.
type answers struct {
	measured func(took time.Duration)
	// last has the last grant of each member of the current list.
	last map[election.ID]answer
}

type answer struct {
	term election.Term
	life uint32
	// sent and received are those of the last renewal.
	sent, received election.Tick
}

// observe measures a received answer.
//
// It ignores the first grant of a member in a term: the member may have deferred it, because it had granted another
// process before, or was waiting after a restart. Each later one renews a grant, and follows its heartbeat at once.
//
// For example, an agent that was paused for 4 s answers 40 heartbeats at once, after 4 s, 3.9 s and so on.
// Only the first of these measures something: the others waited for the same pause. Such an answer is to
// a heartbeat that was sent before the last answer arrived, and follows that one sooner than their
// heartbeats were sent. On a slow link, answers have the same distance as heartbeats.
func (a *answers) observe(r *journal.Record, self election.ID, life uint32) {
	m := &r.Message
	took := r.Now - m.Hold.Sent
	if r.Kind != election.Receive || m.Kind != election.Grant || m.From == self ||
		m.Hold.RequesterLife != life || took < 0 {
		return
	}
	before, now := a.last[m.From], answer{term: m.Term, life: m.Hold.Life}
	if renews := before.term == now.term && before.life == now.life; renews {
		now.sent, now.received = m.Hold.Sent, r.Now
		queued := now.sent < before.received && now.received-before.received < (now.sent-before.sent)/2
		if !queued {
			a.measured(time.Duration(took))
		}
	}
	a.last[m.From] = now
}
