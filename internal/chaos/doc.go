// Package chaos decides which faults a chaos test injects into a group or the candidates of another leader, and judges
// what was observed. It has the kinds of faults and their order for a seed, the invariants, the measurements and the
// report. It does no I/O and reads no clock: package live injects the faults and records the observations.
//
// # What is observed
//
// Each agent is observed in two ways, through a forwarded port. Its stream of changes tells when a coordinator was
// elected and when each agent knew it. Queries, with the times before the request and after the response, prove at
// which instants an agent was coordinator: at some instant between the two. Therefore a slow connection can hide a
// violation, but can't invent one.
//
// Of another leader, claims say who leads: answers of the processes, or versions of objects. See Overlaps for what they
// prove.
//
// Agents that can't be reached, for example on an isolated node, aren't observed meanwhile.
package chaos
