package sim

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
)

// The sizes that a comparison may go up to. With two processes, one that is left
// alone has nobody to tell.
const (
	MinCompared = 3
	MaxCompared = 1000
)

// maxPoints is how many sizes a comparison looks at.
const maxPoints = 40

// Comparison is what an algorithm costs: the messages until everyone knows the
// next coordinator, when that of n processes crashes and one of the others finds
// it out.
type Comparison struct {
	Algorithm string
	Points    []Point
}

// Point is the cost for one number of processes, over the one who finds out.
type Point struct {
	Processes   int
	Best, Worst int
	Mean        float64
	// Initiators is how many have been tried: all that are up, or some.
	Initiators int
}

// Sampled reports whether some initiators were left out.
func (p Point) Sampled() bool { return p.Initiators < p.Processes-1 }

// ComparedSizes are the numbers of processes that a comparison looks at: all up
// to most, or some, closer together where they are small.
func ComparedSizes(most int) []int {
	if most-MinCompared < maxPoints {
		var all []int
		for n := MinCompared; n <= most; n++ {
			all = append(all, n)
		}
		return all
	}
	var sizes []int
	step := math.Log(float64(most)/MinCompared) / (maxPoints - 1)
	for i := range maxPoints {
		n := int(math.Round(MinCompared * math.Exp(step*float64(i))))
		if last := len(sizes) - 1; last >= 0 && n <= sizes[last] {
			n = sizes[last] + 1
		}
		sizes = append(sizes, min(n, most))
	}
	return slices.Compact(sizes)
}

// comparedInitiators are the ones to try among n processes: all but the highest,
// or as many as a moment allows, the lowest and the second-highest among them:
// an odd number, as meanOf needs it.
func comparedInitiators(n int) []election.ID {
	live := n - 1
	tries := live
	if most := max(3, 1_500_000/(n*n)); most < live {
		tries = min(most-1, live/8) | 1 // far enough apart for even spaces
	}
	ids := make([]election.ID, 0, tries)
	for i := range tries {
		place := 0
		if tries > 1 {
			place = (i*(live-1) + (tries-1)/2) / (tries - 1)
		}
		ids = append(ids, election.ID(place+1))
	}
	return ids
}

// Compare counts the messages of all algorithms, for up to most processes.
// Progress, if set, is called after each point by one goroutine at a time.
func Compare(most int, progress func(done, of int)) ([]Comparison, error) {
	if most < MinCompared || most > MaxCompared {
		return nil, inputErrorf("max must be from %d to %d, not %d", MinCompared, MaxCompared, most)
	}
	sizes := ComparedSizes(most)
	var compared []Comparison
	for _, a := range catalog.All() {
		compared = append(compared, Comparison{Algorithm: a.Name, Points: make([]Point, len(sizes))})
	}
	w := comparisonRun{compared: compared, sizes: sizes, progress: progress}
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(w.work)
	}
	wait.Wait()
	return compared, w.failed
}

// comparing is a comparison that runs, in as many goroutines as there are
// processors. Each point is the work of one.
type comparisonRun struct {
	compared []Comparison
	sizes    []int
	next     atomic.Int64

	lock     sync.Mutex
	done     int
	failed   error
	progress func(done, of int)
}

func (c *comparisonRun) work() {
	all := len(c.compared) * len(c.sizes)
	for {
		// The largest first, so that nobody waits for one at the end.
		i := all - int(c.next.Add(1))
		if i < 0 {
			return
		}
		of, size := &c.compared[i%len(c.compared)], i/len(c.compared)
		point, err := comparePoint(of.Algorithm, c.sizes[size])
		of.Points[size] = point
		c.report(err, all)
	}
}

func (c *comparisonRun) report(err error, all int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.done++
	if err != nil && c.failed == nil {
		c.failed = err
	}
	if c.progress != nil {
		c.progress(c.done, all)
	}
}

func comparePoint(algorithm string, n int) (Point, error) {
	initiators := comparedInitiators(n)
	p := Point{Processes: n, Best: math.MaxInt, Initiators: len(initiators)}
	var totals []int
	for _, id := range initiators {
		o, err := Run(Scenario{
			Algorithm: algorithm, Processes: n, Crashed: []election.ID{election.ID(n)}, Initiators: []election.ID{id},
			Latency: Millisecond,
		})
		if err != nil {
			return Point{}, err
		}
		p.Best, p.Worst = min(p.Best, o.Total), max(p.Worst, o.Total)
		totals = append(totals, o.Total)
	}
	p.Mean = meanOf(totals, n-1)
	return p, nil
}

// meanOf is the mean over so many who may find out, of whom those that are evenly
// spaced, both ends among them, have been tried: by Simpson's rule, for no cost
// grows faster than the square of a process's rank. The mean of the sample would
// count the ends, one of which is the worst case, for too much.
func meanOf(totals []int, all int) float64 {
	last := len(totals) - 1
	sampled, sum, weights := len(totals) < all, 0, 0
	for i, total := range totals {
		weight := 1
		if sampled && i > 0 && i < last {
			weight = 2 + 2*(i%2)
		}
		sum, weights = sum+weight*total, weights+weight
	}
	mean := float64(sum) / float64(weights)
	if sampled {
		// From the area between both ends to the sum over all, with these.
		mean = (mean*float64(all-1) + float64(totals[0]+totals[last])/2) / float64(all)
	}
	return mean
}
