package election

// Term numbers the elections. It is not in the textbooks, where every message
// arrives in time: ours may arrive late, and a term tells the old from the new.
type Term uint64

// Token is what a coordinator shows to whoever guards a resource: it rises from
// tenure to tenure, so that a guard which remembers the highest one and refuses
// lower ones is safe whatever happens.
type Token uint64

const priorityBits = 20

// MaxTerm is the highest term that fits in a Token.
const MaxTerm Term = 1<<(64-priorityBits) - 1

// TokenOf is the fencing token of a coordinator in a term.
func TokenOf(t Term, p Priority) Token { return Token(t)<<priorityBits | Token(p) }

// Term is the term that the token was given in.
func (t Token) Term() Term { return Term(t >> priorityBits) }

// Priority is the priority of the coordinator that has the token.
func (t Token) Priority() Priority { return Priority(t) & MaxPriority }

// Tick is a moment on a process's own monotonic clock.
type Tick int64

// Never is later than every moment.
const Never Tick = 1<<63 - 1

// TermClock reads terms off the wall clock. A process that lost its memory
// learns from it which terms may have been used while it could still remember:
// it may use terms above the reading at boot only, and no process uses a term
// above the present reading. So terms rise over a restart of everybody.
//
// The zero TermClock reads nothing: it forbids no term and remembers none. It
// is for runs in which nobody forgets.
type TermClock struct {
	// AtBoot is the reading when the process started.
	AtBoot Term
	// Boot is the same moment on the monotonic clock.
	Boot Tick
	// TicksPerTerm says how fast the reading rises. It should be shorter than the
	// patience of those who wait for an election: a process whose clock is behind
	// could otherwise be overtaken by the next election whenever it may begin.
	TicksPerTerm Tick
}

// Floor is the highest term that may have been used before the process started.
func (c TermClock) Floor() Term { return c.AtBoot }

// Ceiling is the highest term that may be used now.
func (c TermClock) Ceiling(now Tick) Term {
	if c.TicksPerTerm <= 0 {
		return MaxTerm
	}
	return min(MaxTerm, c.AtBoot+Term(max(0, now-c.Boot)/c.TicksPerTerm))
}

// Due is the moment from which term may be used.
func (c TermClock) Due(term Term) Tick {
	if c.TicksPerTerm <= 0 || term <= c.AtBoot {
		return c.Boot
	}
	if term-c.AtBoot > Term((Never-c.Boot)/c.TicksPerTerm) {
		return Never // the clock will not get there
	}
	return c.Boot + Tick(term-c.AtBoot)*c.TicksPerTerm
}
