package sim

import "github.com/conclave-dev/conclave/internal/election"

// links are which ones are cut, and what is on its way on them.
type links struct {
	cuts [maxMembers + 1]uint32
	last [maxMembers + 1][maxMembers + 1]election.Tick
	used election.ID
}

func (l *links) reset() {
	for i := range l.cuts[:l.used+1] {
		l.cuts[i] = 0
		clear(l.last[i][:l.used+1])
	}
	l.used = 0
}

func (l *links) cut(from, to election.ID) bool { return l.cuts[from]>>to&1 != 0 }

func (l *links) sever(from, to election.ID) {
	l.used = max(l.used, from, to)
	l.cuts[from] |= 1 << to
}

func (l *links) heal() { clear(l.cuts[:]) }

// inOrder is the moment at which a message can arrive behind those before it.
func (l *links) inOrder(from, to election.ID, at election.Tick) election.Tick {
	l.used = max(l.used, from, to)
	at = max(at, l.last[from][to])
	l.last[from][to] = at
	return at
}
