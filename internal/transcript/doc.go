// Package transcript merges the journals of a group's agents into the transcript of an
// election. It is pure: the caller fetches the journals.
//
//	journals  ->  parts: what each agent has of one election
//	          ->  clocks: by how much the agents' clocks differ
//	          ->  merge: one order, in which causes come before effects
//
// # Order
//
// The steps of an agent keep their order, and a step that received a message comes after the
// step that sent it. A message is recognized by its sender, the sender's life, and its Lamport
// timestamp. Steps that don't depend on each other are in the order of time.
//
// # Time
//
// The clocks of agents differ. If a message arrived before it was sent according to the clocks
// of two agents, the difference is estimated as NTP does: as if the fastest message had taken
// equally long in both directions. So a time between two agents is wrong by at most their
// fastest round trip in this election. Times between the steps of one agent are exact.
//
// # What is not guaranteed
//
// A transcript is complete only if all journals are. Agents that aren't reachable, have
// restarted since, or have replaced the entries by newer ones are missing in it.
package transcript
