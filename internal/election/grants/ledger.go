package grants

import (
	"cmp"

	"github.com/conclave-dev/conclave/internal/election"
)

// Holder is one incarnation of a process.
type Holder struct {
	ID   election.ID
	Life uint32
}

// Request is the request for a grant in a BEAT.
type Request struct {
	Holder
	Term election.Term
	// Held: the request renews a tenure. Otherwise it acquires one.
	Held bool
	// Version is the member list that the holder has adopted.
	Version uint32
	// Sent is the moment of the request on the holder's clock. The answer returns
	// it.
	Sent election.Tick
	// Lease is the requested lease, 0 for the configured one. The answer returns it, so
	// that both sides count the same lease. The caller has checked that it is not longer
	// than the configured one: a member that restarts waits for no longer lease.
	Lease election.Tick
}

// Answer is a member's answer to a Request.
type Answer uint8

// The answers.
const (
	// Granted for a lease from now.
	Granted Answer = iota
	// Deferred: the request can't be granted yet. The ledger stores it, so that it
	// can be granted at PendingDue.
	Deferred
	// TermTooLow: the term must be above HighestGranted.
	TermTooLow
	// VersionTooOld: the request is under an older member list.
	VersionTooOld
)

// Ledger is the member's side: which process it has granted, and until when.
type Ledger struct {
	// lease is the configured one, the longest that this member grants for.
	lease election.Tick
	clock election.TermClock
	// silentUntil is when a member that lost its memory may grant again.
	silentUntil election.Tick
	// forgotten is at least the highest term that earlier incarnations granted. Until
	// it is recovered, it is the reading of the clock at boot: see Recover.
	forgotten election.Term
	recovered bool

	// holder, term, until and version are those of the latest grant, and renewed is
	// set if it was a renewal.
	holder  Holder
	term    election.Term
	until   election.Tick
	version uint32
	renewed bool
	// olderUntil is when all earlier grants under an older version than that of the
	// latest grant, or than the adopted one, have expired.
	olderUntil election.Tick
	// highestGranted is the highest term that this incarnation granted, and
	// previousHighest the highest one before the latest grant.
	highestGranted, previousHighest election.Term
	// pending is the deferred request. Its Term is 0 if there is none.
	pending Request
}

// NewLedger returns the ledger of a member that remembers all its grants.
func NewLedger(lease election.Tick, clock election.TermClock, now election.Tick) Ledger {
	return Ledger{lease: lease, clock: clock, silentUntil: now, recovered: true, until: now, olderUntil: now}
}

// NewLedgerWithoutMemory returns the ledger of a member that has lost its memory.
// It grants nothing for a lease, or for the longest lease that the member may have
// granted for before, from the moment ended: by then, its earlier incarnations had ended.
func NewLedgerWithoutMemory(lease, longest election.Tick, clock election.TermClock, ended, now election.Tick) Ledger {
	l := NewLedger(lease, clock, now)
	l.silentUntil = max(now, ended+max(lease, longest))
	l.olderUntil = l.silentUntil
	l.forgotten, l.recovered = clock.Floor(), false
	return l
}

// SetLease changes the configured lease. What was granted before remains in force. The
// caller has stored a longer lease, so that the next incarnation waits for it.
func (l *Ledger) SetLease(lease election.Tick) { l.lease = lease }

// HighestGranted returns the term that an acquisition must exceed.
func (l *Ledger) HighestGranted() election.Term { return max(l.forgotten, l.highestGranted) }

// HighestGrantedExcept returns the highest granted term, not counting the grants
// to h in term.
func (l *Ledger) HighestGrantedExcept(h Holder, term election.Term) election.Term {
	if l.holder == h && l.term == term {
		return max(l.forgotten, l.previousHighest)
	}
	return l.HighestGranted()
}

// Holder returns which process has an unexpired grant, or the zero Holder.
func (l *Ledger) Holder(now election.Tick) Holder {
	if now >= l.until {
		return Holder{}
	}
	return l.holder
}

// HasGranted reports whether a process has an unexpired grant of this member for a term.
func (l *Ledger) HasGranted(id election.ID, term election.Term, now election.Tick) bool {
	return now < l.until && l.holder.ID == id && l.term == term
}

// WaitingAfterRestart reports whether the member doesn't grant yet because it lost
// its memory.
func (l *Ledger) WaitingAfterRestart(now election.Tick) bool { return now < l.silentUntil }

// Handle answers a request. The caller has checked that the requester is a
// member of priority above 0. The parameter version is the list that this
// member has adopted.
func (l *Ledger) Handle(r Request, version uint32, now election.Tick) Answer {
	if r.Version < version {
		return VersionTooOld
	}
	sameTerm := r.Term == l.term && r.Holder == l.holder
	occupied := now < l.until && r.Holder != l.holder
	// A term is granted to one process. A coordinator may have acquired a lower one from others, and renew it here.
	if r.Term <= l.HighestGranted() && !sameTerm && (!r.Held || occupied) {
		if r.Term > l.highestGranted && now < l.RecoveryDue() {
			l.deferRequest(r, now)
			return Deferred
		}
		return TermTooLow
	}
	if r.Holder == l.holder && r.Term < l.term {
		return TermTooLow // the request is late: its sender has a newer term and relies on the newer grant
	}
	ahead := r.Term > l.clock.Ceiling(now) && !sameTerm // the clock may have been set back since the grant
	if occupied || now < l.silentUntil || ahead {
		l.deferRequest(r, now)
		return Deferred
	}
	l.grant(r, now)
	return Granted
}

// deferRequest stores a request, unless a better one is stored: one of a higher term,
// or one of a term that the clock has reached. If any term counted, a single request
// of a term far ahead would keep all others from being granted until then.
func (l *Ledger) deferRequest(r Request, now election.Tick) {
	ceiling := l.clock.Ceiling(now)
	reached, pendingReached := r.Term <= ceiling, l.pending.Term <= ceiling
	switch {
	case l.pending.Term == 0, reached && !pendingReached, reached == pendingReached && r.Term >= l.pending.Term:
		l.pending = r
	}
}

func (l *Ledger) grant(r Request, now election.Tick) {
	if r.Version > l.version {
		l.olderUntil = max(l.olderUntil, l.until)
	}
	if r.Holder != l.holder || r.Term != l.term {
		l.previousHighest = l.highestGranted
	}
	l.renewed = r.Held || l.renewed && r.Holder == l.holder && r.Term == l.term
	l.holder, l.term, l.version = r.Holder, r.Term, r.Version
	// A request for a shorter lease doesn't shorten what this member promised before: the
	// holder may still rely on that.
	l.until = max(l.until, now+cmp.Or(r.Lease, l.lease))
	l.highestGranted = max(l.highestGranted, r.Term)
	if l.pending.Term <= r.Term {
		l.pending = Request{}
	}
}

// Release ends the grants to one incarnation of a process up to a term, because it
// resigned. It doesn't affect other incarnations. They may have a lower term, and
// did not resign.
func (l *Ledger) Release(h Holder, term election.Term, now election.Tick) {
	if l.holder == h && l.term <= term {
		l.free(now)
	}
	if l.pending.Holder == h && l.pending.Term <= term {
		l.pending = Request{}
	}
}

// Abandon is Release for a claim that its process has given up without acquiring the
// office. The term was never used then, so it doesn't count as granted.
func (l *Ledger) Abandon(h Holder, term election.Term, now election.Tick) {
	if l.holder == h && l.term == term && !l.renewed {
		l.highestGranted = l.previousHighest
	}
	l.Release(h, term, now)
}

// ProcessEnded ends the grants to one incarnation of a process, because that has
// ended.
func (l *Ledger) ProcessEnded(h Holder, now election.Tick) {
	if l.holder == h {
		l.free(now)
	}
	if l.pending.Holder == h {
		l.pending = Request{}
	}
}

func (l *Ledger) free(now election.Tick) {
	l.until, l.olderUntil = min(l.until, now), min(l.olderUntil, now)
}

// SetClock replaces the clock, because the wall clock was corrected or another member
// list was adopted. A member that still relies on the reading at boot for what earlier
// incarnations granted relies on the higher of the two readings.
func (l *Ledger) SetClock(clock election.TermClock) {
	l.clock = clock
	if l.Recovering() {
		l.forgotten = max(l.forgotten, clock.Floor())
	}
}

// Adopt records that this member has adopted the member list version. Grants under
// older lists aren't renewed any more.
func (l *Ledger) Adopt(version uint32) {
	if l.version < version {
		l.olderUntil = max(l.olderUntil, l.until)
		l.version = version
	}
	if l.pending.Version < version {
		l.pending = Request{}
	}
}

// ReportedVersion returns the version to report as adopted: version itself as soon
// as no grant under an older list is in force.
func (l *Ledger) ReportedVersion(version uint32, now election.Tick) uint32 {
	if now < l.olderUntil {
		return version - 1
	}
	return version
}

// Pending returns the deferred request. Its Term is 0 if there is none.
func (l *Ledger) Pending() Request { return l.pending }

// DropPending removes the deferred request.
func (l *Ledger) DropPending() { l.pending = Request{} }

// PendingDue returns when the deferred request can be granted, or Never.
func (l *Ledger) PendingDue() election.Tick {
	if l.pending.Term == 0 {
		return election.Never
	}
	due := max(l.silentUntil, l.clock.Due(l.pending.Term))
	if l.pending.Term <= l.forgotten && !l.pending.Held {
		due = max(due, l.RecoveryDue())
	}
	if l.pending.Holder != l.holder {
		due = max(due, l.until)
	}
	return due
}

// Encode appends the ledger to b.
func (l *Ledger) Encode(b []byte, now election.Tick) []byte {
	for _, at := range [...]election.Tick{l.silentUntil, l.until, l.olderUntil} {
		b = election.AppendMoment(b, at, now)
	}
	for _, n := range [...]uint64{
		uint64(l.holder.ID), uint64(l.holder.Life), uint64(l.term), uint64(l.version),
		uint64(l.highestGranted), uint64(l.previousHighest), uint64(l.forgotten),
		uint64(l.pending.ID), uint64(l.pending.Life), uint64(l.pending.Term), uint64(l.pending.Version),
	} {
		b = election.AppendNumber(b, n)
	}
	b = election.AppendFlag(b, l.recovered)
	b = election.AppendFlag(b, l.renewed)
	if l.pending.Term == 0 {
		return b // without a deferred request there is no moment at which it was sent
	}
	b = election.AppendFlag(b, l.pending.Held)
	b = election.AppendNumber(b, uint64(l.pending.Lease))
	return election.AppendNumber(b, uint64(now-l.pending.Sent))
}
