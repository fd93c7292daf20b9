// Package grants ensures that at most one process holds the office, whatever the
// elections decide. The holder needs unexpired grants of a majority of the
// declared members, and a member grants one process at a time.
//
// # Why no two processes hold the office
//
// A member that grants promises not to grant another process for a lease, measured
// on the member's own clock. The holder measures the lease on its own clock, from
// when it sent the request, and subtracts a margin for clocks that run at
// different rates. So the holder stops before the promise ends. Any two majorities
// have a member in common, and that member would have to break its promise.
//
// A holder may request a shorter lease than the configured one. The request names the
// lease and the answer repeats it, so that both sides count the same. Each grant is a
// promise of its own: a later one for a shorter lease doesn't shorten it.
//
// # Why tokens rise
//
// A member grants an acquisition only in a term above all other terms that it has
// granted, or again in the same term to the same process. A member that lost its
// memory uses the reading of its clock at boot instead. That is safe because no
// member grants a term above the present reading of its clock (see
// election.TermClock). Renewals need no such rule: a tenure that lapses is never
// revived, and its process needs a new term.
//
// # What a member remembers after a restart
//
// A member whose process ended, but not its machine, has a Memory and continues as before.
// The rest of this comment calls a member without a Memory one that lost its memory.
//
// # What a member without memory recovers
//
// The reading at boot may be far above the terms in use, and above the clocks of
// other members. They could not grant such a term. So a member that lost its memory
// replaces the reading by what others report, each a bound on the terms that it has
// granted itself.
//
// The member first waits until its earlier grants have expired. A tenure that one of
// these helped to acquire was acquired before that, with the grants of a majority. Of
// n members, any n - majority + 1 others include one that granted it, too. If it
// reports its bound after that time, the bound is at least the term of the tenure:
// either it remembers the grant, or its own clock at boot had passed that term, or it
// has recovered itself, in the same way. So the highest bound of n - majority + 1
// others is high enough, for each list in force.
//
// A claim that is given up never becomes a tenure, so its term doesn't count.
//
// # When the member list changes
//
// Until a majority of the old list has adopted the new one, a holder needs a
// majority of both lists. A member that adopted a list grants no requests under an
// older one. It reports that it adopted the list only when what it granted under
// the older one has expired. With that report it sends the highest term that it
// granted, and a process that relies on the new list alone needs a higher term.
// Members may have forgotten what they granted under lists before the previous
// one; those terms, and those that departed members granted, are at most the Floor
// of the list.
//
// # What is assumed
//
//   - The rates of clocks differ by less than the margin, and clocks don't stand
//     still.
//   - When an incarnation begins, the member's wall clock reads at least what the previous
//     one took it to read when it granted last: it doesn't go back over a restart by
//     more than the time for which the process was down, and not shortly before, without
//     a correction of the TermClock. A member that recovers
//     from the others, or has a Memory, doesn't rely on this.
//   - An incarnation of a process ends before the next one begins.
//   - An incarnation never begins with an older member list than an earlier one
//     had adopted, nor with a lower Floor of the same list. Otherwise members that
//     forgot a list could be a majority of the previous one.
//   - An incarnation that begins with a shorter lease than an earlier one granted
//     for is informed of the longer one.
//   - A Memory includes everything that the latest incarnation granted, and the clock of
//     its moments has continued since.
//   - A process that is reported as ended (ProcessEnded) or departed has ended.
//   - At most two lists are in force at once.
package grants
