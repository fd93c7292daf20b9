// Package election is the vocabulary of Conclave: members and their ranks,
// terms and tokens, messages, inputs and outputs, the process status table, and
// the Machine that every election is.
//
// # Sources
//
// The algorithms are textbook ones: the bully and the election on a ring by
// identifiers (Garcia-Molina; Chang and Roberts; Le Lann), the bully improved by
// a process status table, the active list, and the ring that skips dead
// successors. Each has a package of its own below this one; catalog maps the
// names that users write to their constructors.
//
// # Assumptions
//
// A Machine is pure. It has no clock, socket, goroutine, log or randomness: time
// is a number that each Input carries (the process's own monotonic clock, in
// ticks), timers are deadlines that the Machine names, and whoever runs it
// delivers messages. Equal inputs give equal outputs, so that a run can be
// replayed from its seed and every state can be visited.
//
// Two things here are not in the textbooks. A Term numbers the elections, since
// real networks deliver late. And a process can be asked to BecomeIneligible: its
// application is dead beside an agent that lives, so it forwards, but must not
// be elected.
//
// # What is not guaranteed
//
// An algorithm by itself is the textbook: in a partition every side elects.
// That at most one process acts as coordinator is the work of the packages
// grants and office, which wrap an algorithm.
package election
