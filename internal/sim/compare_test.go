package sim

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
)

// expectedCosts are the message counts that docs/algorithms derives, for n processes
// of which the highest has crashed and the one of priority i detects that.
var expectedCosts = map[string]func(n, i int) int{
	"Bully": func(n, i int) int {
		sum := n - 2
		for j := i; j <= n-2; j++ {
			sum += n - j     // ELECTION to all above
			sum += n - 1 - j // OK from those that live
		}
		return sum
	},
	"StatusTable": func(n, i int) int {
		if i == n-1 {
			return n - 2
		}
		return n
	},
	"RingAllIDs":     func(n, _ int) int { return n * n },
	"RingChampion":   func(n, i int) int { return n - 1 - i + 2*n },
	"RingActiveList": func(n, _ int) int { return (n - 1) * (n - 1) },
	"RingSkip":       func(n, _ int) int { return 2 * (n - 1) },
}

func TestComparisonMatchesFormulas(t *testing.T) {
	compared, err := Compare(30)
	if err != nil {
		t.Fatal(err)
	}
	if len(compared) != len(expectedCosts) {
		t.Fatalf("got %d algorithms, want %d", len(compared), len(expectedCosts))
	}
	for _, c := range compared {
		if len(c.Points) != 28 {
			t.Errorf("%s: got %d points, want 28", c.Algorithm, len(c.Points))
		}
		for _, p := range c.Points {
			var all []int
			sum := 0
			for i := 1; i < p.Processes; i++ {
				cost := expectedCosts[c.Algorithm](p.Processes, i)
				all, sum = append(all, cost), sum+cost
			}
			mean := float64(sum) / float64(len(all))
			if p.Best != slices.Min(all) || p.Worst != slices.Max(all) || math.Abs(p.Mean-mean) > 1e-9 || p.Sampled() {
				t.Errorf("%s, n = %d: got %+v, want %d, %g and %d of all %d",
					c.Algorithm, p.Processes, p, slices.Min(all), mean, slices.Max(all), len(all))
			}
		}
	}
}

func TestBestAndWorstSurviveSampling(t *testing.T) {
	for name, cost := range expectedCosts {
		n := 300
		p, err := comparePoint(name, n)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Sampled() {
			t.Errorf("%s: got all %d initiators, want a sample", name, p.Initiators)
		}
		if best, worst := cost(n, n-1), max(cost(n, 1), cost(n, n-1)); p.Best != best || p.Worst != worst {
			t.Errorf("%s: got %d to %d, want %d to %d", name, p.Best, p.Worst, best, worst)
		}
	}
}

// Even if few initiators are tried, the mean is close to that of all of them.
func TestMeanSurvivesSampling(t *testing.T) {
	for name, cost := range expectedCosts {
		if name == "RingAllIDs" || name == "RingActiveList" {
			continue // all initiators have the same cost, and the run takes long
		}
		for _, n := range []int{124, 200, 500} {
			p, err := comparePoint(name, n)
			if err != nil {
				t.Fatal(err)
			}
			sum := 0
			for i := 1; i < n; i++ {
				sum += cost(n, i)
			}
			if want := float64(sum) / float64(n-1); !p.Sampled() || math.Abs(p.Mean-want) > want/500 {
				t.Errorf("%s, n = %d: mean of %d initiators: got %.1f, want about %.1f", name, n, p.Initiators, p.Mean, want)
			}
		}
	}
}

func TestComparedSizes(t *testing.T) {
	for _, most := range []int{3, 4, 42, 43, 50, 100, 999, 1000} {
		sizes := ComparedSizes(most)
		if len(sizes) > maxPoints || sizes[0] != MinCompared || sizes[len(sizes)-1] != most {
			t.Errorf("up to %d: got %v", most, sizes)
		}
		if !slices.IsSorted(sizes) || len(slices.Compact(slices.Clone(sizes))) != len(sizes) {
			t.Errorf("up to %d: got %v, want ascending sizes", most, sizes)
		}
	}
	if got := ComparedSizes(6); !slices.Equal(got, []int{3, 4, 5, 6}) {
		t.Errorf("up to 6: got %v, want 3 to 6", got)
	}
}

func TestCompareRejectsInvalidSizes(t *testing.T) {
	for _, most := range []int{-1, 0, 2, MaxCompared + 1} {
		var inputError *InputError
		if _, err := Compare(most); !errors.As(err, &inputError) {
			t.Errorf("up to %d: got error %v, want an InputError", most, err)
		}
	}
}

func TestFormatRanges(t *testing.T) {
	for want, ids := range map[string][]election.ID{
		"":               {},
		"3":              {3},
		"1-3":            {3, 1, 2},
		"1, 3-4, 9":      {9, 4, 1, 3},
		"2-10000, 10002": append([]election.ID{10002}, ascendingIDs(10000)[1:]...),
		"1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and 3 more": {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 28},
	} {
		if got := FormatRanges(ids); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDisagreementIsDescribed(t *testing.T) {
	o := Outcome{Coordinator: 4, Views: []View{
		{Process: 1, Status: election.Status{Coordinator: 3}},
		{Process: 2, Status: election.Status{Coordinator: 4}},
		{Process: 3},
		{Process: 4, Status: election.Status{Coordinator: 4}},
		{Process: 5, Down: true},
	}}
	want := "no agreement: 2, 4 name 4; 1 names 3; 3 names nobody"
	if got := o.Describe(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
