// Package membership plans what should exist for a group: its member list, the document that publishes the list to the
// agents, and the Service that points at the coordinator. It is pure.
//
// A list that is being adopted settles in one status update, and the next list begins in another
// one, because the schema requires that (docs/adr/0008-what-the-status-remembers.md):
//
//	v1 Settled -> v2 Adopting -> v2 Adopting, b departed -> v2 Settled -> v3 Adopting
//
// The operator writes the list and the digest of the document to the status, and then pushes the document to the
// agents. So the status has each list before any agent has it. The API server rejects a plan that is based on a stale
// status, and the operator does not apply the rest of that plan.
package membership
