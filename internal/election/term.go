package election

// Term numbers the elections. The textbooks need no terms, because they assume
// that each message arrives in time. In a real network a message may arrive
// late, and its term shows that it belongs to an older election.
type Term uint64

// Token is the fencing token that a coordinator presents to a resource. It
// rises from tenure to tenure. A resource that stores the highest token and
// refuses lower ones is protected against former coordinators.
type Token uint64

// A token is below 2^53 until the year 2069, so that JavaScript, and JSON readers that
// use its numbers, don't round it. That limits how many terms there are in a second, and
// the priorities.
const priorityBits = 14

// MaxTerm is the highest term.
const MaxTerm Term = 1<<44 - 1

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

// Epoch is a reading of the wall clock, in units that all processes of a group share:
// 40 ms in agents. A term is an epoch and a counter. The counter numbers the
// elections within an epoch, so that each election has a term that processes may use at
// once, although the next epoch may be seconds away: see TermClock.
type Epoch uint64

// counterBits is the size of the counter in a term. Sixteen elections are enough for the time
// for which the reading of a process may stand still, which is at most half a minute, and
// only after so many lists that the floor has run ahead: see TermClock.
const counterBits = 4

// MaxEpoch is the epoch of MaxTerm.
const MaxEpoch = Epoch(MaxTerm >> counterBits)

// Epoch returns the epoch of the term.
func (t Term) Epoch() Epoch { return Epoch(t >> counterBits) }

// First returns the lowest term of the epoch.
func (e Epoch) First() Term { return Term(min(e, MaxEpoch)) << counterBits }

// Last returns the highest term of the epoch.
func (e Epoch) Last() Term { return e.First() | (1<<counterBits - 1) }

// AcceptedSkew is by how many epochs the clocks of two processes of a group may differ.
// With epochs of 40 ms that is half a minute.
const AcceptedSkew Epoch = 750

// TermClock derives terms from the wall clock. A process that lost its memory
// doesn't remember which terms it has granted or used. Two rules replace that
// memory: the process uses only terms of epochs after its reading at boot, and no
// process uses a term of an epoch after its present reading. So terms rise even if
// all processes restart.
//
// The zero TermClock forbids no term. It is for runs in which no process loses
// its memory.
type TermClock struct {
	// AtBoot is the wall clock when the process started.
	AtBoot Epoch
	// Boot is that moment on the monotonic clock.
	Boot Tick
	// TicksPerEpoch is how many ticks the wall clock needs to rise by one epoch.
	TicksPerEpoch Tick
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
// Because it rises more slowly, it is never far ahead of the floor. What it is ahead
// would have to be added to the floor of the next list.
func (c TermClock) reading(wall Epoch) Epoch {
	if c.ListFloor == 0 {
		return wall
	}
	floor := c.ListFloor.Epoch()
	slowest := slowestAt(floor)
	return max(wall, floor+1+(max(wall, slowest)-slowest)/catchUp)
}

// slowestAt returns the lowest wall clock that a process may have when it adopts a list
// with a floor in this epoch.
func slowestAt(floor Epoch) Epoch { return floor - min(floor, 2*AcceptedSkew) }

// wall returns the time of the wall clock from which terms of an epoch may be used.
func (c TermClock) wall(epoch Epoch) Epoch {
	floor := c.ListFloor.Epoch()
	switch ahead := epoch - min(epoch, floor); {
	case c.ListFloor == 0:
		return epoch
	case ahead <= 1:
		return 0
	case ahead > 2*AcceptedSkew:
		return epoch
	default:
		return min(epoch, slowestAt(floor)+(ahead-1)*catchUp)
	}
}

// NextFloor returns the floor of a list that is published when the publisher's clock
// reads wall and the present floor is floor. No process whose clock is ahead by at most
// the accepted skew has used a higher term.
func NextFloor(floor Term, wall Epoch) Term {
	return TermClock{ListFloor: floor}.reading(wall + AcceptedSkew).Last()
}

// Floor returns the highest term that may have been used before the process
// started.
func (c TermClock) Floor() Term {
	if c.TicksPerEpoch <= 0 {
		return c.AtBoot.First()
	}
	return c.reading(c.AtBoot).Last()
}

// Ceiling returns the highest term that may be used now.
func (c TermClock) Ceiling(now Tick) Term {
	if c.TicksPerEpoch <= 0 {
		return MaxTerm
	}
	return c.reading(c.AtBoot + Epoch(max(0, now-c.Boot)/c.TicksPerEpoch)).Last()
}

// Later returns the highest term that another clock may permit some time after it permitted ceiling. If that is above
// the floor, the other clock has the same floor, and the reading tells how far it is behind.
func (c TermClock) Later(ceiling Term, passed Tick) Term {
	if c.TicksPerEpoch <= 0 {
		return MaxTerm
	}
	epoch, epochs := ceiling.Epoch(), Epoch(passed/c.TicksPerEpoch)
	switch {
	case epochs == 0:
		return ceiling
	case epoch > c.ListFloor.Epoch():
		return c.reading(c.wall(epoch+1) - 1 + epochs).Last()
	default:
		return (epoch + epochs).Last()
	}
}

// Due returns the moment from which term may be used.
func (c TermClock) Due(term Term) Tick {
	wall := c.wall(term.Epoch())
	if c.TicksPerEpoch <= 0 || wall <= c.AtBoot {
		return c.Boot
	}
	if wall-c.AtBoot > Epoch((Never-c.Boot)/c.TicksPerEpoch) {
		return Never // the clock never reaches the term
	}
	return c.Boot + Tick(wall-c.AtBoot)*c.TicksPerEpoch
}

// Corrected returns the clock after the wall clock was found to read wall at the
// moment now.
func (c TermClock) Corrected(wall Epoch, now Tick) TermClock {
	c.AtBoot, c.Boot = wall, now
	return c
}
