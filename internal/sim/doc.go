// Package sim runs elections on a virtual network with virtual clocks.
//
// It has two entry points:
//
//   - Run runs a Scenario: one election as the textbooks describe it, with given
//     crashed processes and initiators, and counts its messages.
//   - Sample runs random schedules. Each schedule draws faults from a seed and
//     checks the invariants of the protocol after every step.
//
// The tests also visit every interleaving of the messages of a small group.
//
// The simulator runs the same Machines as the agent. It delivers their messages
// and sets their timers, and takes no part in their decisions.
package sim
