package office_test

import (
	"math/rand/v2"

	"github.com/conclave-dev/conclave/internal/election"
)

// links[a][b] reports whether messages from a to b arrive.
type links [graphSize + 1][graphSize + 1]bool

func (l *links) both(a, b election.ID) bool { return l[a][b] && l[b][a] }

// connect restores the links between these processes, in the order of the pairs.
func connect(pairs ...[2]election.ID) (l links) {
	for _, p := range pairs {
		l[p[0]][p[1]], l[p[1]][p[0]] = true, true
	}
	return l
}

// reachesMajority reports whether a process exchanges messages with a majority.
func (l *links) reachesMajority(id election.ID) bool {
	reached := 1
	for other := election.ID(1); other <= graphSize; other++ {
		if l.both(id, other) {
			reached++
		}
	}
	return reached > graphSize/2
}

var allLinks = func() (l links) {
	for a := 1; a <= graphSize; a++ {
		for b := 1; b <= graphSize; b++ {
			l[a][b] = a != b
		}
	}
	return l
}()

// drawLinks draws links, some of them in one direction only, such that some process
// reaches a majority.
func drawLinks(r *rand.Rand, oneWay bool) links {
	for {
		var l links
		share := 0.25 + 0.6*r.Float64()
		for a := 1; a <= graphSize; a++ {
			for b := a + 1; b <= graphSize; b++ {
				l[a][b] = r.Float64() < share
				l[b][a] = l[a][b]
				if oneWay && r.Float64() < 0.3 {
					l[a][b] = r.Float64() < share
				}
			}
		}
		for id := election.ID(1); id <= graphSize; id++ {
			if l.reachesMajority(id) {
				return l
			}
		}
	}
}
