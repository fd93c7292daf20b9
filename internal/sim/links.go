package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
)

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

// divide cuts the network in two.
func (w *world) divide() {
	sides := w.rng.next()
	if w.watch != nil {
		w.announce(election.None, "the network divides: %s", w.sides(sides))
	}
	for a := election.ID(1); a <= w.ever; a++ {
		for b := election.ID(1); b <= w.ever; b++ {
			if (sides>>a^sides>>b)&1 != 0 {
				w.links.sever(a, b)
			}
		}
	}
}

// sides names the processes on either side.
func (w *world) sides(of uint64) string {
	var two [2][]election.ID
	for id := election.ID(1); id <= w.ever; id++ {
		two[of>>id&1] = append(two[of>>id&1], id)
	}
	return fmt.Sprintf("%s | %s", Spans(two[0]), Spans(two[1]))
}
