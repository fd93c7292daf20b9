package chaos

import (
	"math"
	"slices"
	"time"
)

// Result is the result of a run.
type Result struct {
	Namespace string `json:"namespace"`
	Group     string `json:"group,omitempty"`
	// Leader is the source that says who leads, if this isn't a group. Candidates selects the pods, and Evidence says what
	// the source proves.
	Leader     string `json:"leader,omitempty"`
	Candidates string `json:"candidates,omitempty"`
	Evidence   string `json:"evidence,omitempty"`
	Algorithm  string `json:"algorithm,omitempty"`
	Safety     string `json:"safety,omitempty"`
	Members    int    `json:"members"`
	Seed       uint64 `json:"seed"`
	// ObservedMillis isn't 0 if faults were injected by something else, and only observed. Then an element of Faults is a
	// change of the leader.
	ObservedMillis int64 `json:"observedMillis,omitempty"`
	// Summary has an element for each kind of fault that was injected.
	Summary []Summary `json:"summary"`
	Faults  []Fault   `json:"faults"`
	// Violations are the violated invariants.
	Violations []Violation `json:"violations"`
	// Exceeded are the budgets that were exceeded.
	Exceeded []string `json:"exceeded,omitempty"`
	// NotPossible are the kinds that aren't possible here, with the reasons.
	NotPossible map[string]string `json:"notPossible,omitempty"`
	// Interrupted: the user ended the run early.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Fault is an injected fault. Durations are in milliseconds from the fault, and nil if they weren't observed.
type Fault struct {
	Number  int       `json:"number"`
	Kind    string    `json:"kind"`
	Victims []string  `json:"victims,omitempty"`
	At      time.Time `json:"at"`
	// Coordinator is the next coordinator, if there was an election.
	Coordinator string   `json:"coordinator,omitempty"`
	Elected     *float64 `json:"electedMillis,omitempty"`
	Known       *float64 `json:"knownMillis,omitempty"`
	Status      *float64 `json:"statusMillis,omitempty"`
	Service     *float64 `json:"serviceMillis,omitempty"`
	// Settled is the time until all members were up again and everything agreed.
	Settled *float64 `json:"settledMillis,omitempty"`
	// Flaps is how often the lead changed again, and TwoLeaders how long two processes led at the same time, at least. 0
	// is an instant. Only leaders that aren't groups have these.
	Flaps      int      `json:"flaps,omitempty"`
	TwoLeaders *float64 `json:"twoLeadersMillis,omitempty"`
	// Refused is the reason why the fault wasn't injected, such as a disruption budget.
	Refused string `json:"refused,omitempty"`
}

// Violation is a violated invariant.
type Violation struct {
	// Fault is the number of the fault before it.
	Fault int    `json:"fault"`
	Kind  string `json:"kind"`

	Problem
}

// SetTimes sets the durations.
func (f *Fault) SetTimes(t *Times) {
	f.Elected, f.Known, f.Status, f.Service = millis(t.Elected), millis(t.Known), millis(t.Status), millis(t.Service)
}

// SetRecord sets what is known when all claims until the next fault are.
func (f *Fault) SetRecord(r *Record) {
	f.Flaps = max(0, len(r.Successions())-1)
	if overlaps := Overlaps(r.Claims); len(overlaps) > 0 {
		var total time.Duration
		for i := range overlaps {
			total = max(total, overlaps[i].Total)
		}
		f.TwoLeaders = millis(&total)
	}
}

func millis(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	return new(float64(d.Microseconds()) / 1000)
}

// Summary has the measurements of one kind of fault.
type Summary struct {
	Kind string `json:"kind"`
	// Count is the number of faults. Refused ones don't count.
	Count   int           `json:"count"`
	Refused int           `json:"refused,omitempty"`
	Elected *Distribution `json:"elected,omitempty"`
	Known   *Distribution `json:"known,omitempty"`
	Status  *Distribution `json:"status,omitempty"`
	Service *Distribution `json:"service,omitempty"`
	Settled *Distribution `json:"settled,omitempty"`
	// Flaps is the sum over all faults, and TwoLeaders has those with two leaders.
	Flaps      int           `json:"flaps,omitempty"`
	TwoLeaders *Distribution `json:"twoLeaders,omitempty"`
}

// Distribution is the distribution of a duration in milliseconds.
type Distribution struct {
	Count  int     `json:"count"`
	Min    float64 `json:"minMillis"`
	Median float64 `json:"medianMillis"`
	P99    float64 `json:"p99Millis"`
	Max    float64 `json:"maxMillis"`
}

// Summarize returns the measurements of each kind, in the order of Kinds.
func Summarize(faults []Fault) []Summary {
	summaries := []Summary{}
	for _, name := range append(KindNames(), changeOfLeader) {
		s := Summary{Kind: name}
		var elected, known, status, service, settled, two []*float64
		for i := range faults {
			f := &faults[i]
			switch {
			case f.Kind != name:
			case f.Refused != "":
				s.Refused++
			default:
				s.Count++
				elected, known, status = append(elected, f.Elected), append(known, f.Known), append(status, f.Status)
				service, settled, two = append(service, f.Service), append(settled, f.Settled), append(two, f.TwoLeaders)
				s.Flaps += f.Flaps
			}
		}
		if s.Count+s.Refused == 0 {
			continue
		}
		s.Elected, s.Known, s.Status = distribution(elected), distribution(known), distribution(status)
		s.Service, s.Settled, s.TwoLeaders = distribution(service), distribution(settled), distribution(two)
		summaries = append(summaries, s)
	}
	return summaries
}

// distribution returns the distribution of those values that were observed, or nil if none was. A quantile is the
// smallest value that at least this part of the values doesn't exceed.
func distribution(observed []*float64) *Distribution {
	var values []float64
	for _, v := range observed {
		if v != nil {
			values = append(values, *v)
		}
	}
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	quantile := func(q float64) float64 { return values[max(0, int(math.Ceil(q*float64(len(values))))-1)] }
	return &Distribution{
		Count: len(values), Min: values[0], Median: quantile(0.5), P99: quantile(0.99), Max: values[len(values)-1],
	}
}
