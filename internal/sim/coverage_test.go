package sim

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// What the checks have to withstand does happen, and in combination: in each of
// these ways in so many of 4000 schedules at least.
var minOccurrences = map[string]int{
	"a crash":            1000,
	"a silent crash":     200,
	"a restart":          1000,
	"a pause":            500,
	"a partition":        500,
	"a failing link":     200,
	"a member list":      500,
	"a step-down":        500,
	"a dead application": 500,

	"a crash while a list is being adopted":        200,
	"a silent crash while a list is being adopted": 10,
	"a restart while a list is being adopted":      200,
	"a pause while a list is being adopted":        30,
	"a partition while a list is being adopted":    30,
	"a failing link while a list is being adopted": 10,
	"a crash while links are cut":                  50,
	"a silent crash while links are cut":           10,
	"a restart while links are cut":                30,
	"a pause while links are cut":                  30,
	"a member list while links are cut":            30,
	"a late word of a crash, in the next life":     100,
	"a list with departed members":                 100,
	"a process that is on no list any more":        100,
	"a member of priority 0 at work":               100,
	"a tenure while a list is being adopted":       100,
	"a tenure while links are cut":                 50,
	"a tenure while another stands still with one": 30,
	"a tenure after a tenure and a crash of all":   50,
	"a tenure that lapses":                         500,
	"a hand-over":                                  500,
}

// announced are the words by which the world announces what goes wrong.
var occurrenceOfFault = map[string]string{
	"crashes": "a crash", "nobody is told": "a silent crash", "comes back": "a restart", "stands still": "a pause",
	"divides": "a partition", "fails": "a failing link", "member list": "a member list",
}

// sightings counts the schedules in which something was seen.
type faultCoverage struct {
	simulation *simulation
	schedules  map[string]int
	// seen has been counted for this schedule.
	recorded map[string]bool
	// ended: everybody has crashed after somebody had tenure.
	allCrashed bool
}

func (s *faultCoverage) record(what string, when bool) {
	if when && !s.recorded[what] {
		s.recorded[what] = true
		s.schedules[what]++
	}
}

func (s *faultCoverage) watch(step Step) {
	w := s.simulation
	adopting := !w.members.settled(w)
	for words, what := range occurrenceOfFault {
		if strings.Contains(step.Fault, words) {
			s.record(what, true)
			s.record(what+" while a list is being adopted", adopting)
			s.record(what+" while links are cut", w.network.cuts != [maxMembers + 1]uint32{})
		}
	}
	if step.Fault != "" {
		s.allCrashed = s.allCrashed || len(w.checker.tokens) > 0 && !w.anyUp()
		return
	}
	p := &w.processes[step.Process]
	s.record("a member of priority 0 at work", p.roster.Has(step.Process) && p.roster.Priority(step.Process) == 0)
	s.record("a process that is on no list any more", !w.members.current.Has(step.Process))
	s.record("a list with departed members", len(p.roster.Departed) > 0)
	s.record("a dead application", p.appDead)
	s.record("a step-down", step.Input.Kind == election.StepDown)
	s.record("a late word of a crash, in the next life",
		step.Input.Kind == election.Ended && w.processes[step.Input.Peer].life > step.Input.Life)
	for _, e := range step.Output.Events {
		s.record("a tenure that lapses", e.Kind == election.TenureLost)
		s.record("a hand-over", e.Kind == election.OfficeResigned && e.Peer != election.None)
		if e.Kind == election.TenureStarted {
			s.record("a tenure while a list is being adopted", adopting)
			s.record("a tenure while links are cut", w.network.cuts != [maxMembers + 1]uint32{})
			s.record("a tenure while another stands still with one", w.pausedHolder(step.Process))
			s.record("a tenure after a tenure and a crash of all", s.allCrashed)
		}
	}
}

func (s *simulation) anyUp() bool {
	for id := range s.processes {
		if s.processes[id].up {
			return true
		}
	}
	return false
}

// pausedHolder reports whether a process but id stands still, and believes
// that it leads.
func (s *simulation) pausedHolder(id election.ID) bool {
	for other := range s.processes {
		p := &s.processes[other]
		if election.ID(other) != id && p.up && p.running && s.queue.now < p.pausedUntil {
			return true
		}
	}
	return false
}

func TestWhatGoesWrongHappens(t *testing.T) {
	algorithm, err := catalog.Find("StatusTable")
	if err != nil {
		t.Fatal(err)
	}
	w, err := newSimulation(settings{algorithm: algorithm, mode: office.Majority, size: 5, faults: allFaults})
	if err != nil {
		t.Fatal(err)
	}
	s := &faultCoverage{simulation: w, schedules: map[string]int{}}
	w.watch = s.watch
	for seed := range uint64(4000) {
		s.recorded, s.allCrashed = map[string]bool{}, false
		if v := w.run(seed); v != nil {
			t.Fatal(v)
		}
	}
	for what, least := range minOccurrences {
		if s.schedules[what] < least {
			t.Errorf("%s: %d of 4000 schedules, want %d or more", what, s.schedules[what], least)
		}
	}
}
