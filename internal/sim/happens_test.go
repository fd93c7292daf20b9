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
var happens = map[string]int{
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
var announced = map[string]string{
	"crashes": "a crash", "nobody is told": "a silent crash", "comes back": "a restart", "stands still": "a pause",
	"divides": "a partition", "fails": "a failing link", "member list": "a member list",
}

// sightings counts the schedules in which something was seen.
type sightings struct {
	world *world
	times map[string]int
	// seen has been counted for this schedule.
	seen map[string]bool
	// ended: everybody has crashed after somebody had tenure.
	ended bool
}

func (s *sightings) see(what string, when bool) {
	if when && !s.seen[what] {
		s.seen[what] = true
		s.times[what]++
	}
}

func (s *sightings) watch(step Step) {
	w := s.world
	adopting := !w.list.settled(w)
	for words, what := range announced {
		if strings.Contains(step.Fault, words) {
			s.see(what, true)
			s.see(what+" while a list is being adopted", adopting)
			s.see(what+" while links are cut", w.links.cuts != [maxMembers + 1]uint32{})
		}
	}
	if step.Fault != "" {
		s.ended = s.ended || len(w.check.tokens) > 0 && !w.anyUp()
		return
	}
	p := &w.all[step.Process]
	s.see("a member of priority 0 at work", p.roster.Has(step.Process) && p.roster.Priority(step.Process) == 0)
	s.see("a process that is on no list any more", !w.list.current.Has(step.Process))
	s.see("a list with departed members", len(p.roster.Departed) > 0)
	s.see("a dead application", p.withdrawn)
	s.see("a step-down", step.Input.Kind == election.StepDown)
	s.see("a late word of a crash, in the next life",
		step.Input.Kind == election.Ended && w.all[step.Input.Peer].life > step.Input.Life)
	for _, e := range step.Output.Events {
		s.see("a tenure that lapses", e.Kind == election.TenureLost)
		s.see("a hand-over", e.Kind == election.OfficeResigned && e.Peer != election.None)
		if e.Kind == election.TenureStarted {
			s.see("a tenure while a list is being adopted", adopting)
			s.see("a tenure while links are cut", w.links.cuts != [maxMembers + 1]uint32{})
			s.see("a tenure while another stands still with one", w.standsStillLeading(step.Process))
			s.see("a tenure after a tenure and a crash of all", s.ended)
		}
	}
}

func (w *world) anyUp() bool {
	for id := range w.all {
		if w.all[id].up {
			return true
		}
	}
	return false
}

// standsStillLeading reports whether a process but id stands still, and believes
// that it leads.
func (w *world) standsStillLeading(id election.ID) bool {
	for other := range w.all {
		p := &w.all[other]
		if election.ID(other) != id && p.up && p.running && w.queue.now < p.pausedUntil {
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
	w, err := newWorld(settings{algorithm: algorithm, mode: office.Majority, processes: 5, faults: allFaults})
	if err != nil {
		t.Fatal(err)
	}
	s := &sightings{world: w, times: map[string]int{}}
	w.watch = s.watch
	for seed := range uint64(4000) {
		s.seen, s.ended = map[string]bool{}, false
		if v := w.run(seed); v != nil {
			t.Fatal(v)
		}
	}
	for what, least := range happens {
		if s.times[what] < least {
			t.Errorf("%s: %d of 4000 schedules, want %d or more", what, s.times[what], least)
		}
	}
}
