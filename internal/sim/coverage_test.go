package sim

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// minOccurrences is the least number of schedules, out of 4000, in which each of
// these faults and combinations must occur. Without them the checks prove nothing.
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

	"a crash while a list is being adopted":             200,
	"a silent crash while a list is being adopted":      10,
	"a restart while a list is being adopted":           200,
	"a pause while a list is being adopted":             30,
	"a partition while a list is being adopted":         30,
	"a failing link while a list is being adopted":      10,
	"a crash while links are cut":                       50,
	"a silent crash while links are cut":                10,
	"a restart while links are cut":                     30,
	"a pause while links are cut":                       30,
	"a member list while links are cut":                 30,
	"a late notification of a crash, after the restart": 100,
	"a list with departed members":                      100,
	"a process that is no longer on a list":             100,
	"a step of a member of priority 0":                  100,
	"a tenure while a list is being adopted":            100,
	"a lost disk":                                       100,
	"a step of a forgetful process":                     100,
	"a disk that is named within a version":             30,
	"a reservation":                                     100,
	"a tenure while links are cut":                      50,
	"a tenure while a paused process has one":           30,
	"a tenure after a crash of all processes":           50,
	"an expired tenure":                                 500,
	"a hand-over":                                       500,
}

// occurrenceOfFault maps a part of the description of a fault to its occurrence.
var occurrenceOfFault = map[string]string{
	"crashes": "a crash", "without resetting": "a silent crash", "restarts": "a restart", "pauses": "a pause",
	"partitioned": "a partition", "fails": "a failing link", "member list": "a member list",
}

// faultCoverage counts the schedules with each occurrence.
type faultCoverage struct {
	simulation *simulation
	schedules  map[string]int
	// recorded has the occurrences of the current schedule.
	recorded map[string]bool
	// allCrashed is set when all processes have crashed after a tenure.
	allCrashed bool
}

// record counts an occurrence once in each schedule.
func (c *faultCoverage) record(what string, when bool) {
	if when && !c.recorded[what] {
		c.recorded[what] = true
		c.schedules[what]++
	}
}

// watch records the occurrences in a step.
func (c *faultCoverage) watch(step transcript.Step) {
	s := c.simulation
	adopting := !s.operator.decided.Settled
	for words, what := range occurrenceOfFault {
		if strings.Contains(step.Fault, words) {
			c.record(what, true)
			c.record(what+" while a list is being adopted", adopting)
			c.record(what+" while links are cut", s.network.cuts != [maxMembers + 1]uint32{})
		}
	}
	if step.Fault != "" {
		c.allCrashed = c.allCrashed || len(s.checker.tokens) > 0 && !s.anyUp()
		return
	}
	p := &s.processes[step.Process]
	c.record("a step of a member of priority 0", p.roster.Has(step.Process) && p.roster.Priority(step.Process) == 0)
	c.record("a process that is no longer on a list", !s.operator.current.Has(step.Process))
	c.record("a list with departed members", len(p.roster.Departed) > 0)
	c.record("a lost disk", p.disks > 1)
	c.record("a step of a forgetful process", s.forgetful(step.Process))
	c.record("a disk that is named within a version", p.votesSince > p.adoptedAt && !s.forgetful(step.Process))
	c.record("a reservation", step.Input.Kind == election.Reserved)
	c.record("a dead application", p.appDead)
	c.record("a step-down", step.Input.Kind == election.StepDown)
	c.record("a late notification of a crash, after the restart",
		step.Input.Kind == election.Ended && s.processes[step.Input.Peer].incarnation > step.Input.Life)
	for _, e := range step.Output.Events {
		c.record("an expired tenure", e.Kind == election.TenureLost)
		c.record("a hand-over", e.Kind == election.OfficeResigned && e.Peer != election.None)
		if e.Kind == election.TenureStarted {
			c.record("a tenure while a list is being adopted", adopting)
			c.record("a tenure while links are cut", s.network.cuts != [maxMembers + 1]uint32{})
			c.record("a tenure while a paused process has one", s.pausedHolder(step.Process))
			c.record("a tenure after a crash of all processes", c.allCrashed)
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

// pausedHolder reports whether a process other than id is paused while its application acts as coordinator.
func (s *simulation) pausedHolder(id election.ID) bool {
	for other := range s.processes {
		p := &s.processes[other]
		if election.ID(other) != id && p.up && p.running && s.queue.now < p.pausedUntil {
			return true
		}
	}
	return false
}

func TestFaultsAndCombinationsOccur(t *testing.T) {
	algorithm, err := catalog.Find("StatusTable")
	must.Succeed(t, err)
	s, err := newSimulation(settings{algorithm: algorithm, mode: office.Majority, size: 5, faults: allFaults})
	must.Succeed(t, err)
	c := &faultCoverage{simulation: s, schedules: map[string]int{}}
	s.watch = c.watch
	n := 4000
	if testing.Short() {
		n = 2000
	}
	for seed := range uint64(n) {
		c.recorded, c.allCrashed = map[string]bool{}, false
		if v := s.run(seed); v != nil {
			t.Fatal(v)
		}
	}
	for what, minimum := range minOccurrences {
		if minimum = minimum * n / 4000; c.schedules[what] < minimum {
			t.Errorf("%s: got %d of %d schedules, want at least %d", what, c.schedules[what], n, minimum)
		}
	}
}

// listPhase is the phase of a change of the member list, for one process.
type listPhase uint8

const (
	// listSettled: no change is under way.
	listSettled listPhase = iota
	// listUnknown: the process hasn't adopted the latest list, which isn't settled.
	listUnknown
	// listAdopted: the process has adopted the latest list, which isn't settled.
	listAdopted
	listPhases
)

// affected is a fault, the role of the process that it affects, and what that process knows of the latest member list.
type affected struct {
	fault Fault
	role  office.Role
	phase listPhase
}

func (s *simulation) listPhase(id election.ID) listPhase {
	switch decided := s.operator.decided; {
	case decided.Settled:
		return listSettled
	case s.processes[id].roster.Version == decided.Version:
		return listAdopted
	}
	return listUnknown
}

var listPhaseNames = [listPhases]string{"settled", "unknown", "adopted"}

// countedFaults are the faults that cover reports.
const countedFaults = allFaults&^(Clocks|Graph|Deep|Pods|DiskLost|Operator) | Gone

// reachable reports whether a fault can occur in a phase. A change of the list begins
// only when no other one is under way. Only lists that
// a process can't store before it has adopted their version are of interest.
func reachable(f Fault, phase listPhase) bool {
	switch f {
	case Members:
		return phase == listSettled
	case Disk:
		return phase == listUnknown
	default:
		return true
	}
}

// faultOfAction has the actions that are faults. Others end one.
var faultOfAction = map[actionKind]Fault{
	actCrash: Crash, actCrashAll: Crash, actKillApp: AppDead, actPause: Pause,
	actPartition: Partition, actCutLink: Partition,
	actStepDown: StepDown, actChangeLease: Leases, actSlowDown: Slow, actReportGone: Gone,
}

// Random schedules visit each combination of a fault, a role and a phase of a change of the member list.
func TestEveryCombinationIsVisited(t *testing.T) {
	algorithm, err := catalog.Find("StatusTable")
	must.Succeed(t, err)
	visited := map[affected]int{}
	s, err := newSimulation(settings{algorithm: algorithm, mode: office.Strict, size: 5, faults: allFaults | Gone})
	must.Succeed(t, err)
	visit := func(f Fault, id election.ID) {
		if p := &s.processes[id]; p.up && p.machine != nil {
			visited[affected{f, p.machine.Role(), s.listPhase(id)}]++
		}
	}
	s.onFault = func(f Fault, id election.ID) {
		if id != election.None {
			visit(f, id)
			return
		}
		for id := election.ID(1); id <= s.maxID; id++ {
			visit(f, id)
		}
	}
	s.onAction = func(a action) {
		if f, all := faultOfAction[a.kind], a.kind == actCrashAll || a.kind == actPartition; all {
			s.onFault(f, election.None)
		} else if f != 0 {
			s.onFault(f, s.target(a))
		}
	}
	n := 40_000
	if testing.Short() {
		n /= 10
	}
	for seed := range uint64(n) {
		if v := s.run(seed + 7_000_000); v != nil {
			t.Fatal(v)
		}
	}
	rare := map[affected]bool{
		{Leases, office.Draining, listUnknown}: true,
		{Pause, office.Draining, listUnknown}:  true,
		{Gone, office.Draining, listUnknown}:   true,
	}
	combinations := 0
	for i, name := range FaultNames() {
		for _, role := range []office.Role{office.Follower, office.Candidate, office.Holder, office.Draining} {
			for phase := range listPhases {
				a := affected{Fault(1) << i, role, phase}
				if countedFaults&a.fault == 0 || !reachable(a.fault, phase) {
					continue
				}
				combinations++
				seldom := rare[a] || testing.Short() && role != office.Holder // a short run has too few schedules
				if visited[a] == 0 && !seldom {
					t.Errorf("no %s affected a %s, list %s", name, role, listPhaseNames[phase])
				}
			}
		}
	}
	expect.AtLeastf(t, combinations, 100, "combinations")
}
