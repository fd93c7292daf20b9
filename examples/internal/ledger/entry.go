// Package ledger is the resource that the examples share: an append-only file behind a fencing check, and a checker
// that finds out from the file alone whether two processes have acted at the same time.
//
// A process gets the right to write from a coordinator, for example with a lock or with the circulating token. It first
// claims the resource, which reads the number of the last write and from then on rejects all older rights, and then
// writes the next number. So, if two processes write under rights that overlap, and nothing rejects the older one, they
// write the same number twice, skip one, or write with an older right than the last one. Checker finds all three.
//
// A ledger is one process with one file. It isn't replicated, and it doesn't wait until
// the disk has stored a line: it survives its own crash, but not that of its machine.
package ledger

import (
	"cmp"
	"errors"
)

// Entry is a line of a ledger, as JSON.
type Entry struct {
	// Resource is what the entry changes. Each resource has numbers and rights of its own.
	Resource string `json:"resource"`
	// Token and Grant are the right under which the entry was written. The token is that of
	// the coordinator that gave the right. The grant counts the rights that it gave.
	Token uint64 `json:"token"`
	Grant uint64 `json:"grant,omitempty"`
	// Seq is the number of the write, from 1. In a claim, it is that of the last write.
	Seq uint64 `json:"seq"`
	// By is the name of the process. Run is an identifier that each claim creates, and the writes after it repeat: a
	// process that claims a resource again, for example after a restart, must not write for an earlier claim any more.
	By    string `json:"by"`
	Run   string `json:"run,omitempty"`
	Claim bool   `json:"claim,omitempty"`
	// Note is for people.
	Note string `json:"note,omitempty"`
	// Violation is set in the report of a process that can prove a violation itself.
	Violation string `json:"violation,omitempty"`
}

// ErrFenced means that the ledger has accepted an entry with a later right, or a later claim with this one.
var ErrFenced = errors.New("the right is outdated")

// compareRights returns -1, 0 or 1 if the right of a is older than, the same as, or later than that of b.
func compareRights(a, b *Entry) int {
	return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Grant, b.Grant))
}

// sameRun reports whether two entries belong to the same claim.
func sameRun(a, b *Entry) bool {
	return compareRights(a, b) == 0 && a.By == b.By && a.Run == b.Run
}
