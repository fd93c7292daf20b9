package election

import "github.com/conclave-dev/conclave/internal/election/memberlist"

// Term numbers the elections: the version of the member list under which a process claims the office, and a counter of
// the claims under that list. Versions rise, so all terms of a list are above those of earlier lists. The textbooks
// need no terms, because they assume that each message arrives in time. In a real network a message may arrive late,
// and its term shows that it belongs to an older election.
type Term uint64

// Token is the fencing token that a coordinator presents to a resource. It rises from tenure to tenure. A resource that
// stores the highest token and refuses lower ones is protected against former coordinators.
type Token uint64

// A token has the version, the counter, and the place of the coordinator in the list. So two sides of
// a partition have different tokens in Available mode. A token is below 2^53, so that JavaScript, and
// JSON readers that use its numbers, don't round it.
const (
	counterBits = memberlist.CounterBits
	placeBits   = 7
)

const (
	// MaxTerm is the highest term.
	MaxTerm Term = memberlist.MaxTerm
	// MaxVersion is the highest version of a member list.
	MaxVersion uint32 = memberlist.MaxVersion
	// Block is how many terms a member reserves at a time: see grants.Ledger. If the members lose their
	// memory, they skip a block.
	Block Term = 64
)

// FirstTerm returns the lowest term of a list. Claims are above it.
func FirstTerm(version uint32) Term { return Term(version) << counterBits }

// LastTerm returns the highest term of a list.
func LastTerm(version uint32) Term { return FirstTerm(version) | (1<<counterBits - 1) }

// Version returns the version of the list of the term.
func (t Term) Version() uint32 { return uint32(t >> counterBits) }

// Counter returns the counter of the term under its list.
func (t Term) Counter() uint32 { return uint32(t & (1<<counterBits - 1)) }

// TokenOf returns the fencing token of a coordinator in a term. The place is that in the list of the term, below 128.
func TokenOf(t Term, place int) Token { return Token(t)<<placeBits | Token(place&(1<<placeBits-1)) }

// Term returns the term of the token.
func (t Token) Term() Term { return Term(t >> placeBits) }

// Tick is a moment on a process's own monotonic clock.
type Tick int64

// Never is later than every moment.
const Never Tick = 1<<63 - 1
