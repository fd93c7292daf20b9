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
// # Why tokens rise
//
// A member grants an acquisition only in a term above all other terms that it has
// granted, or again in the same term to the same process. A member that lost its
// memory uses the reading of its clock at boot instead. That is safe because no
// member grants a term above the present reading of its clock (see
// election.TermClock). Renewals need no such rule: a tenure that lapses is never
// revived, and its process needs a new term.
//
// # When the member list changes
//
// Until a majority of the old list has adopted the new one, a holder needs a
// majority of both lists. A member that adopted a list grants no requests under an
// older one. It reports that it adopted the list only when what it granted under
// the older one has expired. With that report it sends the highest term that it
// granted, and a process that relies on the new list alone needs a higher term.
// Members may have forgotten what they granted under lists before the previous
// one; those terms are at most the Floor of the list.
//
// # What is assumed
//
//   - The rates of clocks differ by less than the margin, and clocks don't stand
//     still.
//   - Over a restart, a member's wall clock doesn't go back by more than the time
//     for which the member waits before it grants.
//   - An incarnation of a process ends before the next one begins.
//   - An incarnation never begins with an older member list than an earlier one
//     had adopted. Otherwise members that forgot a list could be a majority of the
//     previous one.
//   - An incarnation that begins with a shorter lease than an earlier one granted
//     for is informed of the longer one.
//   - A process that is reported as ended (ProcessEnded) or departed has ended.
//   - At most two lists are in force at once.
package grants
