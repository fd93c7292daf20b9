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
	// Sent is the moment of the request on the holder's clock. The answer returns it.
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
	// Deferred: the request can't be granted yet. The ledger stores it, so that it can be granted at PendingDue.
	Deferred
	// TermTooLow: the term must be above HighestGranted.
	TermTooLow
	// NoVote: the request is under an older member list, or this member doesn't vote under its own.
	NoVote
	// Unreserved: the term must be reserved first. The ledger doesn't store the request, which would displace others.
	Unreserved
)

// Ledger is the member's side: which process it has granted, and until when.
type Ledger struct {
	// lease is the configured one, the longest that this member grants for.
	lease election.Tick
	// silentUntil is when a member that lost its memory may grant again.
	silentUntil election.Tick
	// forgotten is at least the highest term that earlier incarnations granted: what they had reserved.
	forgotten election.Term
	// reserved is the highest term that this member may grant. It is on the disk, so that a member that
	// loses its memory knows a bound on what it has granted.
	reserved election.Term
	// extended is a reservation that a request needs, and extendsAt when another request may extend it.
	extended  election.Term
	extendsAt election.Tick

	// holder, term, until and version are those of the latest grant, and renewed is set if it was a renewal.
	holder  Holder
	term    election.Term
	until   election.Tick
	version uint32
	renewed bool
	// olderUntil is when all earlier grants under an older version than that of the
	// latest grant, or than the adopted one, have expired.
	olderUntil election.Tick
	// highestGranted is the highest term in which this incarnation helped a process to acquire the office, and
	// previousHighest the highest one before the latest grant. Renewals don't count: a majority has granted the
	// acquisition, and refuses that term to others.
	highestGranted, previousHighest election.Term
	// pending is the deferred request. Its Term is 0 if there is none.
	pending Request
}

// NewLedger returns the ledger of a member that remembers all its grants, or has never granted anything.
func NewLedger(lease, now election.Tick) Ledger {
	return Ledger{lease: lease, silentUntil: now, until: now, olderUntil: now}
}

// NewLedgerWithoutMemory returns the ledger of a member that has lost its memory. It grants nothing for a lease, or for
// the longest lease that the member may have granted for before, from the moment ended: by then, its earlier
// incarnations had ended. They granted no term above forgotten.
func NewLedgerWithoutMemory(lease, longest election.Tick, forgotten election.Term, ended, now election.Tick) Ledger {
	l := NewLedger(lease, now)
	l.silentUntil = max(now, ended+max(lease, longest))
	l.olderUntil = l.silentUntil
	l.forgotten = forgotten
	return l
}

// Reserve records that a term is on the disk as the highest one that this member may grant.
func (l *Ledger) Reserve(term election.Term) { l.reserved = max(l.reserved, term) }

// Reserved returns the highest term that this member may grant.
func (l *Ledger) Reserved() election.Term { return l.reserved }

// Wanted returns the term that should be reserved: a block above the terms in use, or the present reservation while
// half of the block is left. The parameter used is a term that is in use as far as others say. A request for a higher
// term adds one block in a lease: the process may have skipped terms that it has forgotten, or failed to acquire the
// office in. So a single member can't use up the terms of a list soon. A request under a newer list counts as a whole:
// this member may receive that list much later.
func (l *Ledger) Wanted(used election.Term) election.Term {
	used = max(used, l.highestGranted)
	if l.pending.Term > l.reserved && !l.pending.Held {
		used = max(used, l.pending.Term)
	}
	if used+election.Block/2 < l.reserved {
		return max(l.reserved, l.extended)
	}
	return max(l.reserved, l.extended, min(used+election.Block, election.LastTerm(used.Version())))
}

// SetLease changes the configured lease. What was granted before remains in force. The
// caller has stored a longer lease, so that the next incarnation waits for it.
func (l *Ledger) SetLease(lease election.Tick) { l.lease = lease }

// HighestGranted returns the term that an acquisition must exceed.
func (l *Ledger) HighestGranted() election.Term { return max(l.forgotten, l.highestGranted) }

// HighestRemembered returns the highest term that this member has granted since it lost its memory.
func (l *Ledger) HighestRemembered() election.Term { return l.highestGranted }

// HighestGrantedExcept returns the highest granted term, not counting the grants to h in term.
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

// InForce reports whether a process may have an unexpired grant of this member, or of an earlier incarnation.
func (l *Ledger) InForce(now election.Tick) bool {
	return now < max(l.until, l.olderUntil, l.silentUntil)
}

// SilentUntil returns when a member that lost its memory may grant again.
func (l *Ledger) SilentUntil() election.Tick { return l.silentUntil }

// WaitingAfterRestart reports whether the member doesn't grant yet because it lost its memory.
func (l *Ledger) WaitingAfterRestart(now election.Tick) bool { return now < l.silentUntil }

// Handle answers a request. The caller has checked that the requester is a member of priority above 0. The parameter
// version is the list that this member has adopted.
func (l *Ledger) Handle(r Request, version uint32, now election.Tick) Answer {
	if r.Version < version {
		return NoVote
	}
	sameTerm := r.Term == l.term && r.Holder == l.holder
	occupied := now < l.until && r.Holder != l.holder
	// A term is granted to one process. A coordinator may have acquired a lower one from others, and renew it here.
	if r.Term <= l.HighestGranted() && !sameTerm && (!r.Held || occupied) {
		return TermTooLow
	}
	if r.Holder == l.holder && r.Term < l.term {
		return TermTooLow // the request is late: its sender has a newer term and relies on the newer grant
	}
	if r.Term > l.reserved && !r.Held && r.Term.Version() <= version {
		if now >= l.extendsAt {
			l.extended, l.extendsAt = min(l.reserved+election.Block, election.LastTerm(version)), now+l.lease
		}
		return Unreserved
	}
	if occupied || now < l.silentUntil || r.Term > l.reserved && !r.Held {
		l.deferRequest(r)
		return Deferred
	}
	l.grant(r, now)
	return Granted
}

// deferRequest stores a request, unless one of a higher term is stored.
func (l *Ledger) deferRequest(r Request) {
	if r.Term >= l.pending.Term {
		l.pending = r
	}
}

func (l *Ledger) grant(r Request, now election.Tick) {
	if r.Version > l.version {
		l.olderUntil = max(l.olderUntil, l.until)
	}
	if r.Holder != l.holder || r.Term != l.term {
		l.previousHighest, l.renewed = l.highestGranted, false
	}
	l.renewed = l.renewed || r.Held
	l.holder, l.term, l.version = r.Holder, r.Term, r.Version
	// A request for a shorter lease doesn't shorten what this member promised before: the holder may still rely on that.
	l.until = max(l.until, now+cmp.Or(r.Lease, l.lease))
	if !r.Held {
		l.highestGranted = max(l.highestGranted, r.Term)
	}
	if l.pending.Term <= r.Term {
		l.pending = Request{}
	}
}

// Release ends the grants to one incarnation of a process up to a term, because it resigned. It doesn't affect other
// incarnations. They may have a lower term, and did not resign.
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

// ProcessEnded ends the grants to one incarnation of a process, because that has ended.
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

// Adopt records that this member has adopted the member list version. Grants under
// older lists aren't renewed any more. The list is on the disk, together with a first block of its terms.
func (l *Ledger) Adopt(version uint32) {
	l.Reserve(election.FirstTerm(version) + election.Block)
	if l.version < version {
		l.olderUntil = max(l.olderUntil, l.until)
		l.version = version
	}
	if l.pending.Version < version {
		l.pending = Request{}
	}
}

// ReportedVersion returns the version to report as adopted: version itself as soon
// as no grant under an older list is in force, and 0 before.
func (l *Ledger) ReportedVersion(version uint32, now election.Tick) uint32 {
	if now < l.olderUntil {
		return 0
	}
	return version
}

// Pending returns the deferred request. Its Term is 0 if there is none.
func (l *Ledger) Pending() Request { return l.pending }

// DropPending forgets the deferred request.
func (l *Ledger) DropPending() { l.pending = Request{} }

// PendingDue returns when the deferred request can be granted, or Never.
func (l *Ledger) PendingDue() election.Tick {
	if l.pending.Term == 0 || l.pending.Term > l.reserved && !l.pending.Held {
		return election.Never
	}
	due := l.silentUntil
	if l.pending.Holder != l.holder {
		due = max(due, l.until)
	}
	return due
}

// Encode appends the ledger to b.
func (l *Ledger) Encode(b []byte, now election.Tick) []byte {
	for _, at := range [...]election.Tick{l.silentUntil, l.until, l.olderUntil, l.extendsAt} {
		b = election.AppendMoment(b, at, now)
	}
	for _, n := range [...]uint64{
		uint64(l.holder.ID), uint64(l.holder.Life), uint64(l.term), uint64(l.version),
		uint64(l.highestGranted), uint64(l.previousHighest), uint64(l.forgotten),
		uint64(l.reserved), uint64(l.extended),
		uint64(l.pending.ID), uint64(l.pending.Life), uint64(l.pending.Term), uint64(l.pending.Version),
	} {
		b = election.AppendNumber(b, n)
	}
	b = election.AppendFlag(b, l.renewed)
	if l.pending.Term == 0 {
		return b // without a deferred request there is no moment at which it was sent
	}
	b = election.AppendFlag(b, l.pending.Held)
	b = election.AppendNumber(b, uint64(l.pending.Lease))
	return election.AppendNumber(b, uint64(now-l.pending.Sent))
}
