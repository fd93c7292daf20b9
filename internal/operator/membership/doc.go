// Package membership decides what should be there for a group: its member list, and
// the objects that carry it to the agents and traffic to the coordinator. Values
// in, values out; controllers/ gathers the facts and applies the plan.
//
// A plan is one step. A list that is being adopted settles in one status, and
// the next list begins in another one, because that is what the schema allows
// (docs/adr/0008-what-the-status-remembers.md):
//
//	v1 Settled -> v2 Adopting -> v2 Adopting, b departed -> v2 Settled -> v3 Adopting
//
// Status first, then the ConfigMap, then the agents: whatever an agent has seen
// of a list has been in the status before. A plan that was made from a stale
// status is refused there, and nothing of it gets any further.
package membership
