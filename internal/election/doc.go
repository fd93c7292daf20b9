// Package election defines what all elections share: members and their ranks, terms and tokens, messages, inputs and
// outputs, the process status table, and the interface Machine.
//
// # Sources
//
// The algorithms are textbook algorithms: the bully algorithm and the election on a ring by identifiers (Garcia-Molina;
// Chang and Roberts; Le Lann), the bully algorithm improved by a process status table, the active list, and the ring
// that skips dead successors. The packages bully, statustable and ring have them. Package catalog maps the names that
// users write to their constructors. Comments cite the source texts by keys such as [ImprovedBully];
// docs/algorithms/README.md has the bibliography.
//
// # Assumptions
//
// A Machine is pure. It has no clock, socket, goroutine, log or randomness. Time is a number that each Input carries:
// the process's own monotonic clock, in ticks. Timers are deadlines that the Machine returns, and the caller delivers
// messages. Equal inputs give equal outputs, so that a run can be replayed from its seed and a search can visit every
// state.
//
// Two concepts are not in the textbooks. A Term numbers the elections, because real networks deliver messages late. And
// a process can become ineligible (BecomeIneligible): its application is dead but its agent is alive, so it forwards
// messages but must not be elected.
//
// # What is not guaranteed
//
// An algorithm alone guarantees no more than its textbook does: in a partition each side elects a coordinator. The
// packages grants and office, which wrap an algorithm, ensure that at most one process acts as coordinator.
package election
