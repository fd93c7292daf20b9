// Package grants ensures that at most one process holds the office, whatever the elections decide. The holder needs
// unexpired grants of a majority of the declared members, and a member grants one process at a time.
//
// # Why no two processes hold the office
//
// A member that grants promises not to grant another process for a lease, measured on the member's own clock. The
// holder measures the lease on its own clock, from when it sent the request, and subtracts a margin for clocks that run
// at different rates. So the holder stops before the promise ends. Any two majorities have a member in common, and that
// member would have to break its promise.
//
// A holder may request a shorter lease than the configured one. The request names the
// lease and the answer repeats it, so that both sides count the same. Each grant is a
// promise of its own: a later one for a shorter lease doesn't shorten it.
//
// # Why tokens rise
//
// A term has the version of the list under which it was claimed, so the terms of a list are above those of all earlier
// lists. Under one list, a member grants an acquisition only in a term above all other terms that it has granted, or
// again in the same term to the same process. Renewals need no such rule: a tenure that lapses is never revived, and
// its process needs a new term.
//
// # What a member remembers
//
// A member whose process ended, but not its machine, has a Memory and continues as before. The Memory doesn't survive
// the end of the machine. For that, a member stores a reservation on its disk, a term somewhat above those that it has
// granted, and grants no acquisition above it. It stores the next reservation long before it needs it, so that no
// election waits for the disk. A member without a Memory regards its reservation as granted, and waits until all its
// earlier grants have expired.
//
// A member that has lost its disk, too, is another voter. Each disk has an identity, and the
// list names it. The member doesn't vote under a list that names another identity. Under one
// that names its own, it has granted nothing before, so it needn't wait.
//
// # When the member list changes
//
// Until a majority of the old list has adopted the new one, a holder needs a majority of both lists. A member that
// adopted a list grants no requests under an older one. It reports that it adopted the list only when what it granted
// under the older one has expired. If the identity of a member has changed from one list to the next, its grants and
// its report count for the new one only: what its predecessor granted under the old one may be in force.
//
// A list and a first reservation of its terms are stored together, before the list is adopted.
//
// # What is assumed
//
//   - The rates of clocks differ by less than the margin, and clocks don't stand still.
//   - A disk doesn't lose what was stored, nor does it go back to an earlier state,
//     unless it gets another identity. Two members don't have copies of one disk.
//   - At most one identity is named for a member in the publications of a version.
//   - An incarnation of a process ends before the next one begins.
//   - An incarnation that begins with a shorter lease than an earlier one granted for is informed of the longer one.
//   - A Memory includes everything that the latest incarnation granted, and the clock of
//     its moments has continued since.
//   - A process that is reported as ended (ProcessEnded) or departed has ended.
//   - At most two lists are in force at once.
package grants
