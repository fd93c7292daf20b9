package election

// Term numbers the elections. The textbooks need no terms, because they assume
// that each message arrives in time. In a real network a message may arrive
// late, and its term shows that it belongs to an older election.
type Term uint64

// Token is the fencing token that a coordinator presents to a resource. It
// rises from tenure to tenure. A resource that stores the highest token and
// refuses lower ones is protected against former coordinators.
type Token uint64

const priorityBits = 20

// MaxTerm is the highest term that fits in a Token.
const MaxTerm Term = 1<<(64-priorityBits) - 1

// TokenOf returns the fencing token of a coordinator in a term.
func TokenOf(t Term, p Priority) Token { return Token(t)<<priorityBits | Token(p) }

// Term returns the term of the token.
func (t Token) Term() Term { return Term(t >> priorityBits) }

// Priority returns the priority of the coordinator that has the token.
func (t Token) Priority() Priority { return Priority(t) & MaxPriority }

// Tick is a moment on a process's own monotonic clock.
type Tick int64

// Never is later than every moment.
const Never Tick = 1<<63 - 1

// TermClock derives terms from the wall clock. A process that lost its memory
// doesn't remember which terms it has granted or used. Two rules replace that
// memory: the process uses only terms above its reading at boot, and no process
// uses a term above its present reading. So terms rise even if all processes
// restart.
//
// The zero TermClock forbids no term. It is for runs in which no process loses
// its memory.
type TermClock struct {
	// AtBoot is the reading when the process started.
	AtBoot Term
	// Boot is that moment on the monotonic clock.
	Boot Tick
	// TicksPerTerm is how many ticks the reading needs to rise by one. It
	// should be shorter than the time for which processes wait for an election.
	// Otherwise a process whose clock is behind could be overtaken by the next
	// election each time.
	TicksPerTerm Tick
}

// Floor returns the highest term that may have been used before the process
// started.
func (c TermClock) Floor() Term { return c.AtBoot }

// Ceiling returns the highest term that may be used now.
func (c TermClock) Ceiling(now Tick) Term {
	if c.TicksPerTerm <= 0 {
		return MaxTerm
	}
	return min(MaxTerm, c.AtBoot+Term(max(0, now-c.Boot)/c.TicksPerTerm))
}

// Due returns the moment from which term may be used.
func (c TermClock) Due(term Term) Tick {
	if c.TicksPerTerm <= 0 || term <= c.AtBoot {
		return c.Boot
	}
	if term-c.AtBoot > Term((Never-c.Boot)/c.TicksPerTerm) {
		return Never // the clock never reaches the term
	}
	return c.Boot + Tick(term-c.AtBoot)*c.TicksPerTerm
}
