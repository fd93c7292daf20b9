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

// AcceptedSkew is by how many terms the clocks of two processes of a group may differ.
// With terms of a tenth of a second that is half a minute.
const AcceptedSkew Term = 300

// TermClock derives terms from the wall clock. A process that lost its memory
// doesn't remember which terms it has granted or used. Two rules replace that
// memory: the process uses only terms above its reading at boot, and no process
// uses a term above its present reading. So terms rise even if all processes
// restart.
//
// The zero TermClock forbids no term. It is for runs in which no process loses
// its memory.
type TermClock struct {
	// AtBoot is the wall clock when the process started, in terms.
	AtBoot Term
	// Boot is that moment on the monotonic clock.
	Boot Tick
	// TicksPerTerm is how many ticks the wall clock needs to rise by one term. It
	// should be shorter than the time for which processes wait for an election.
	// Otherwise a process whose clock is behind could be overtaken by the next
	// election each time.
	TicksPerTerm Tick
	// ListFloor is the Floor of the member list. The reading is above it, even if the
	// wall clock is behind: see reading.
	ListFloor Term
}

// catchUp is how much slower than the wall clock the reading rises until the wall
// clock has caught up with it.
const catchUp = 30

// reading returns the reading for a time of the wall clock. While the wall clock is
// behind the floor of the member list, the reading is ahead of it, because a tenure
// needs a higher term than the floor. It still rises with the wall clock, so that the
// two rules hold, from the moment at which the slowest clock may adopt the list.
// Because it rises more slowly, it is never more than reserved ahead of the floor,
// which would have to be added to the floor of the next list.
func (c TermClock) reading(wall Term) Term {
	if c.ListFloor == 0 {
		return wall
	}
	slowest := c.ListFloor - min(c.ListFloor, 2*AcceptedSkew)
	return max(wall, c.ListFloor+1+(max(wall, slowest)-slowest)/catchUp)
}

// wall returns the time of the wall clock from which term may be used.
func (c TermClock) wall(term Term) Term {
	switch ahead := term - min(term, c.ListFloor); {
	case c.ListFloor == 0:
		return term
	case ahead <= 1:
		return 0
	case ahead > 2*AcceptedSkew:
		return term
	default:
		slowest := c.ListFloor - min(c.ListFloor, 2*AcceptedSkew)
		return min(term, slowest+(ahead-1)*catchUp)
	}
}

// NextFloor returns the floor of a list that is published when the publisher's clock
// reads wall and the present floor is floor. No process whose clock is ahead by at most
// the accepted skew has used a higher term.
func NextFloor(floor, wall Term) Term {
	return min(MaxTerm, TermClock{ListFloor: floor}.reading(wall+AcceptedSkew))
}

// Floor returns the highest term that may have been used before the process
// started.
func (c TermClock) Floor() Term {
	if c.TicksPerTerm <= 0 {
		return c.AtBoot
	}
	return c.reading(c.AtBoot)
}

// Ceiling returns the highest term that may be used now.
func (c TermClock) Ceiling(now Tick) Term {
	if c.TicksPerTerm <= 0 {
		return MaxTerm
	}
	return min(MaxTerm, c.reading(c.AtBoot+Term(max(0, now-c.Boot)/c.TicksPerTerm)))
}

// Due returns the moment from which term may be used.
func (c TermClock) Due(term Term) Tick {
	wall := c.wall(term)
	if c.TicksPerTerm <= 0 || wall <= c.AtBoot {
		return c.Boot
	}
	if wall-c.AtBoot > Term((Never-c.Boot)/c.TicksPerTerm) {
		return Never // the clock never reaches the term
	}
	return c.Boot + Tick(wall-c.AtBoot)*c.TicksPerTerm
}

// Corrected returns the clock after the wall clock was found to read wall at the
// moment now.
func (c TermClock) Corrected(wall Term, now Tick) TermClock {
	c.AtBoot, c.Boot = wall, now
	return c
}
