package sim

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
)

// The limits of the largest size of a comparison. With two processes, the one that
// is left would have no peer to send a message to.
const (
	MinCompared = 3
	MaxCompared = 1000
)

// maxPoints is the most sizes of a comparison.
const maxPoints = 40

// Comparison is the cost of an algorithm: the number of messages until all processes
// know the next coordinator, when the highest of n processes has crashed and one of
// the others detects that.
type Comparison struct {
	Algorithm string  `json:"algorithm"`
	Points    []Point `json:"points"`
}

// Point is the cost for one number of processes, over all choices of the initiator.
type Point struct {
	Processes int     `json:"processes"`
	Best      int     `json:"best"`
	Worst     int     `json:"worst"`
	Mean      float64 `json:"mean"`
	// Initiators is the number of initiators that were tried: all live processes, or
	// a sample of them.
	Initiators int `json:"initiators"`
}

// Sampled reports whether only a sample of the initiators was tried.
func (p Point) Sampled() bool { return p.Initiators < p.Processes-1 }

// ComparedSizes returns the numbers of processes of a comparison: all up to most, or
// a sample that is denser where they are small.
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

// comparedInitiators returns the initiators to try among n processes. These are all
// but the highest or, for a large n, an evenly spaced sample that includes the lowest
// and the second-highest. The size of a sample is odd, as meanOf requires.
func comparedInitiators(n int) []election.ID {
	live := n - 1
	tries := live
	if most := max(3, 1_500_000/(n*n)); most < live {
		tries = min(most-1, live/8) | 1 // far enough apart to be evenly spaced
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

// Compare counts the messages of all algorithms for up to most processes.
func Compare(most int) ([]Comparison, error) {
	if most < MinCompared || most > MaxCompared {
		return nil, inputErrorf("max must be from %d to %d, not %d", MinCompared, MaxCompared, most)
	}
	r := comparisonRun{sizes: ComparedSizes(most)}
	for _, a := range catalog.All() {
		r.compared = append(r.compared, Comparison{Algorithm: a.Name, Points: make([]Point, len(r.sizes))})
	}
	errs := make([]error, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() { errs[i] = r.work() })
	}
	wait.Wait()
	return r.compared, errors.Join(errs...)
}

// comparisonRun runs a comparison in one goroutine per processor. Each point is
// computed by one of them.
type comparisonRun struct {
	compared []Comparison
	sizes    []int
	next     atomic.Int64
}

func (c *comparisonRun) work() error {
	for {
		// Start with the largest, so that none of them is left for the end.
		i := len(c.compared)*len(c.sizes) - int(c.next.Add(1))
		if i < 0 {
			return nil
		}
		of, size := &c.compared[i%len(c.compared)], i/len(c.compared)
		point, err := comparePoint(of.Algorithm, c.sizes[size])
		if err != nil {
			return err
		}
		of.Points[size] = point
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

// meanOf returns the mean cost over all initiators, given the costs of an evenly
// spaced sample that includes both ends. It uses Simpson's rule, which is accurate
// here because no cost grows faster than the square of the initiator's rank. The
// mean of the sample would give too much weight to the ends, one of which is the
// worst case.
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
		// Simpson's rule gives the area between the ends. Add the ends for the sum.
		mean = (mean*float64(all-1) + float64(totals[0]+totals[last])/2) / float64(all)
	}
	return mean
}
