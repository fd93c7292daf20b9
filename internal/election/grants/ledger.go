// Package grants lets one process at most hold the office, whatever the
// elections say: the holder needs unexpired grants of a majority of the declared
// members, and a member grants one process at a time.
//
// # Why no two hold it
//
// A member promises, for a lease of its own clock, to grant nobody else. The
// holder counts the lease from when it sent the request, on its own clock, less
// a margin for clocks of different rates, so that it stops before the promise
// ends. Two majorities meet in a member.
//
// # Why tokens rise
//
// A member grants an acquisition only in a term above every other that it
// granted (or the same term to the same process). One that lost its memory
// takes the reading of its clock at boot for that: no member grants a term
// above its clock's present reading, see election.TermClock. Renewals need no
// such rule, since a tenure that lapses is never revived: its process needs a
// new term.
//
// # When the member list changes
//
// Until a majority of the old list has adopted the new one, a holder needs a
// majority of both. A member that adopted a list grants nothing under an older
// one, and says that it adopted only when what it granted under the older one
// has run out. With that it says up to which term it granted: whoever relies on
// the new list alone needs a higher one. What happened under even older lists,
// of which the members may have forgotten, is below the list's Floor.
//
// # What is assumed
//
// Clocks drift apart by less than the margin, and don't stand still; a member's
// wall clock doesn't go back over a restart by more than it waits; one life of a
// process ends before the next begins, and never begins with an older list than
// one that it had adopted: members that forget a list could still make a majority
// of the one before. Nor does it begin with a shorter lease than one that it has
// granted for, without being told of that. Whoever reports a process ProcessEnded or
// Departed is right; two lists at most are in force at once.
package grants

import "github.com/conclave-dev/conclave/internal/election"

// Holder is one life of a process.
type Holder struct {
	ID   election.ID
	Life uint32
}

// Request is what a BEAT asks for.
type Request struct {
	Holder
	Term election.Term
	// Held says that this renews a tenure rather than acquires one.
	Held bool
	// Version is the member list that the holder goes by.
	Version uint32
	// Sent is the holder's clock, which the answer brings back.
	Sent election.Tick
}

// Answer is what a member answers.
type Answer uint8

// The answers.
const (
	// Granted for a lease from now.
	Granted Answer = iota
	// Deferred: not yet; the request is kept and may be granted when that can be.
	Deferred
	// TermTooLow: the term isn't above all that were granted; ask with one above HighestGranted.
	TermTooLow
	// VersionTooOld: not under this member list.
	VersionTooOld
)

// Ledger is a member's side: whom it has granted, and until when.
type Ledger struct {
	lease election.Tick
	clock election.TermClock
	// quiet is when a member that lost its memory may grant again.
	silentUntil election.Tick

	holder  Holder
	term    election.Term
	until   election.Tick
	version uint32
	// older is when all that was granted before, under an older version than the
	// present grant's or than the adopted one, has run out.
	olderUntil election.Tick
	// bar is the highest term that was granted, and prior the highest before the
	// present grant's.
	highestGranted, previousHighest election.Term
	// waiting is the request to grant as soon as that can be.
	pending Request
}

// NewLedger opens the ledger of a member that remembers all that it granted.
func NewLedger(lease election.Tick, clock election.TermClock, now election.Tick) Ledger {
	return Ledger{lease: lease, clock: clock, silentUntil: now, until: now, olderUntil: now}
}

// NewLedgerWithoutMemory opens the ledger of a member that has lost its memory. It grants
// nothing for a lease, or for the longest that it may have granted for before.
func NewLedgerWithoutMemory(lease, longest election.Tick, clock election.TermClock, now election.Tick) Ledger {
	l := NewLedger(lease, clock, now)
	l.silentUntil = now + max(lease, longest)
	l.olderUntil = l.silentUntil
	l.highestGranted, l.previousHighest = clock.Floor(), clock.Floor()
	return l
}

// HighestGranted is the term above which an acquisition must be.
func (l *Ledger) HighestGranted() election.Term { return l.highestGranted }

// HighestGrantedExcept is the highest term that was granted to anyone but h in term.
func (l *Ledger) HighestGrantedExcept(h Holder, term election.Term) election.Term {
	if l.holder == h && l.term == term {
		return l.previousHighest
	}
	return l.highestGranted
}

// To is who holds an unexpired grant, the zero Holder if nobody does.
func (l *Ledger) Holder(now election.Tick) Holder {
	if now >= l.until {
		return Holder{}
	}
	return l.holder
}

// WaitingAfterRestart reports whether the member still waits after its restart.
func (l *Ledger) WaitingAfterRestart(now election.Tick) bool { return now < l.silentUntil }

// Handle answers a request. The caller has checked that the holder is a member that
// may stand; version is the list that this member has adopted.
func (l *Ledger) Handle(r Request, version uint32, now election.Tick) Answer {
	if r.Version < version {
		return VersionTooOld
	}
	sameTerm := r.Term == l.term && r.Holder == l.holder
	occupied := now < l.until && r.Holder != l.holder
	if r.Term <= l.highestGranted && !sameTerm && (!r.Held || occupied) {
		return TermTooLow
	}
	if r.Holder == l.holder && r.Term < l.term {
		return TermTooLow // it is late: its sender has gone on, and counts on a newer grant
	}
	if occupied || now < l.silentUntil || r.Term > l.clock.Ceiling(now) {
		if r.Term >= l.pending.Term {
			l.pending = r
		}
		return Deferred
	}
	l.grant(r, now)
	return Granted
}

func (l *Ledger) grant(r Request, now election.Tick) {
	if r.Version > l.version {
		l.olderUntil = max(l.olderUntil, l.until)
	}
	if r.Holder != l.holder || r.Term != l.term {
		l.previousHighest = l.highestGranted
	}
	l.holder, l.term, l.version = r.Holder, r.Term, r.Version
	l.until = now + l.lease
	l.highestGranted = max(l.highestGranted, r.Term)
	if l.pending.Term <= r.Term {
		l.pending = Request{}
	}
}

// Release takes back what was granted to one life of a process up to a term: it
// resigned. Another life may be in a lower term, and knows nothing of that.
func (l *Ledger) Release(h Holder, term election.Term, now election.Tick) {
	if l.holder == h && l.term <= term {
		l.free(now)
	}
	if l.pending.Holder == h && l.pending.Term <= term {
		l.pending = Request{}
	}
}

// ProcessEnded takes back what was granted to one life of a process: it has ended.
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

// Adopt notes that the member list version is adopted: grants under older ones
// aren't renewed any more.
func (l *Ledger) Adopt(version uint32) {
	if l.version < version {
		l.olderUntil = max(l.olderUntil, l.until)
		l.version = version
	}
	if l.pending.Version < version {
		l.pending = Request{}
	}
}

// ReportedVersion is the version to report: the adopted one as soon as nothing granted
// under an older one is in force.
func (l *Ledger) ReportedVersion(version uint32, now election.Tick) uint32 {
	if now < l.olderUntil {
		return version - 1
	}
	return version
}

// Pending is the request that is kept for later; it has no Term when there is
// none.
func (l *Ledger) Pending() Request { return l.pending }

// PendingDue is when the waiting request can be granted, or Never.
func (l *Ledger) PendingDue() election.Tick {
	if l.pending.Term == 0 {
		return election.Never
	}
	due := max(l.silentUntil, l.clock.Due(l.pending.Term))
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
		uint64(l.holder.ID), uint64(l.holder.Life), uint64(l.term), uint64(l.version), uint64(l.highestGranted), uint64(l.previousHighest),
		uint64(l.pending.ID), uint64(l.pending.Life), uint64(l.pending.Term), uint64(l.pending.Version),
	} {
		b = election.AppendNumber(b, n)
	}
	if l.pending.Term == 0 {
		return b // nothing waits, so nothing was sent
	}
	b = election.AppendFlag(b, l.pending.Held)
	return election.AppendNumber(b, uint64(now-l.pending.Sent))
}
