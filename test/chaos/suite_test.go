package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/traffic"
)

func plan(t *testing.T, s *suite) []phase {
	t.Helper()
	phases, err := s.plan()
	must.Succeed(t, err)
	return phases
}

// Two groups that are tested at the same time must not share a namespace, or suffer from each other's faults.
func TestParallelGroupsDontDisturbEachOther(t *testing.T) {
	phases := plan(t,
		&suite{faults: 200, groups: 18, parallel: 4, workloads: "device-owner,lock-service", machines: "docker"})
	namespaces, total := map[string]bool{}, 0
	for _, p := range phases {
		for _, j := range p.jobs {
			if namespaces[j.namespace] {
				t.Errorf("two jobs use namespace %s", j.namespace)
			}
			namespaces[j.namespace], total = true, total+j.faults
			kinds, err := chaos.ParseKinds(j.kinds)
			must.Succeed(t, err)
			if p.parallel > 1 && slices.ContainsFunc(kinds, func(k chaos.Kind) bool { return k.Shared }) {
				t.Errorf("got kinds %v in %d groups at the same time, want none that concerns all groups", j.kinds, p.parallel)
			}
		}
	}
	if len(phases) != 2 || phases[0].parallel != 4 || phases[1].parallel != 1 || len(namespaces) != 36 || total < 200 ||
		total > 200+len(namespaces) {
		t.Errorf("got %d phases with %d jobs and %d faults, want all faults in two phases",
			len(phases), len(namespaces), total)
	}
}

func TestOneGroupAtATimeHasFaultsOfAllKinds(t *testing.T) {
	phases := plan(t, &suite{faults: 18, groups: 18, parallel: 1, workloads: "device-owner"})
	if len(phases) != 1 || len(phases[0].jobs) != 18 {
		t.Fatalf("got %+v, want one phase with 18 jobs", phases)
	}
	for _, j := range phases[0].jobs {
		if j.faults != 1 || !slices.Contains(j.kinds, chaos.Manager) || slices.Contains(j.kinds, chaos.Node) {
			t.Errorf("got %+v, want one fault of all kinds that are possible without machines", j)
		}
	}
}

// The command refuses a kind that isn't possible if it is named, and the suite names all kinds.
func TestKindsThatAreNotPossibleAreLeftOut(t *testing.T) {
	for machines, want := range map[string][]string{
		"": {
			chaos.KillAgent, chaos.KillApp, chaos.Freeze, chaos.Node, chaos.Partition, chaos.Loss, chaos.Delay, chaos.APIServer,
		},
		"docker": {chaos.Delay},
		"podman": nil,
	} {
		s := &suite{
			faults: 18, groups: 18, parallel: 1, workloads: "device-owner", machines: machines, delays: machines == "podman",
		}
		j := plan(t, s)[0].jobs[0]
		missing := slices.DeleteFunc(chaos.KindNames(), func(name string) bool { return slices.Contains(j.kinds, name) })
		expect.EqualSlicesf(t, missing, want, "machines %q: missing kinds", machines)
	}
}

// In Available mode there may be two coordinators, which can grant the same lock.
func TestLockServiceRunsWhereThereIsOneCoordinator(t *testing.T) {
	for _, g := range groups(workloads) {
		if g.safety == "Available" && g.workload == "lock-service" {
			t.Errorf("got %+v, want another workload", g)
		}
	}
	if all, locks := len(groups(workloads)), len(groups([]string{"lock-service"})); all != 18 || locks != 12 {
		t.Errorf("got %d groups, and %d of the lock service, want 18 and 12", all, locks)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for want, s := range map[string]*suite{
		"-workloads must be some of device-owner": {faults: 1, groups: 18, parallel: 1, workloads: "device"},
		"-groups must be from 1 to 18, got 19":    {faults: 1, groups: 19, parallel: 1, workloads: "device-owner"},
		"-faults and -parallel must be 1 or more": {faults: 1, workloads: "device-owner"},
		`-kinds: unknown kind of fault "pods"`: {
			faults: 1, groups: 18, parallel: 1, workloads: "device-owner", kinds: "pods",
		},
	} {
		_, err := s.plan()
		expect.ErrorContainsf(t, err, want, "plan")
	}
}

func TestResultsAreReadAgain(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "results")
	if all, err := read[run](folder, "chaos"); err != nil || len(all) != 0 {
		t.Fatalf("got %v, %v, want no results yet", all, err)
	}
	elected := 12.5
	violation := chaos.Violation{
		Fault: 1, Kind: chaos.Pod, Problem: chaos.Problem{Invariant: chaos.Workload, Detail: "gap"},
	}
	before := []*run{
		{
			Workload: "lock-service", Load: 3, Machine: "one CPU",
			Resources: &resources{map[string]usage{"/agent": {6, 9, 20, 8}}, 30},
			Result: &chaos.Result{
				Algorithm: "Bully", Safety: "Strict", Seed: 4, Violations: []chaos.Violation{violation},
				Faults: []chaos.Fault{{Number: 1, Kind: chaos.Pod, Elected: &elected}, {
					Number: 2, Kind: chaos.Drain, Refused: "all members are on one node",
				}},
			},
		},
		{
			Workload: "device-owner", Machine: "two CPUs", Result: &chaos.Result{},
			Resources: &resources{map[string]usage{"/agent": {5, 7, 21, 8}}, 31},
		},
		{Workload: "device-owner", Load: 5, Machine: "two CPUs", Error: "no API server", Result: &chaos.Result{
			Algorithm: "RingSkip", Safety: "Available",
		}},
	}
	must.Succeed(t, write(folder, "chaos", before, page(before, chaos.Summarize(faultsOf(before)))))
	after, err := read[run](folder, "chaos")
	if err != nil || len(after) != 3 || len(after[0].Faults) != 2 || *after[0].Faults[0].Elected != elected ||
		after[2].Error != "no API server" {
		t.Errorf("got %+v, %v, want what was written", after, err)
	}
	page := must.ReadFile(t, filepath.Join(folder, "chaos.md"))
	for _, want := range []string{
		"**Faults: 1. Violated invariants: 1.**", "Faults of each election and safety mode: 0 to 1, of 3.",
		"30 and 31 objects", "| agents | 6, 5 | 9, 7 | 20, 21 | 8, 8 |",
		"Faults of each workload: 0 to 1, of 2.",
		"Machine: one CPU; two CPUs.",
		"Violated: Bully, Strict, lock-service, seed 4: fault 1 (pod): the workload's invariant: gap",
		"Not completed: RingSkip, Available, device-owner, seed 0: no API server", "weren't tested", "`drain`",
	} {
		expect.Containsf(t, string(page), want, "page")
	}
}

func TestTrafficRefusesWhatItCantMeasure(t *testing.T) {
	s := &suite{traffic: 1, kinds: "kill,evict"}
	expect.ErrorContainsf(t, s.start(t.Context(), "current"), "the kinds of -traffic are", "a kind without a title")
	s = &suite{traffic: 1, ways: "Agents,DNS"}
	expect.ErrorContainsf(t, s.start(t.Context(), "current"), "the ways are", "an unknown way")
	for _, arguments := range [][]string{{"sleep"}, {"send", "127.0.0.1:1"}} {
		expect.ErrorContainsf(t, inPod(t.Context(), arguments, t.Output()), "want serve, or send", "%q", arguments)
	}
}

func TestTrafficPageHasEachFaultAndWay(t *testing.T) {
	var all []*round
	for _, k := range trafficKinds[1:] {
		for _, w := range ways {
			all = append(all, &round{Fault: k[0], Via: w.name, Clients: traffic.Clients{New: traffic.Seen{Gap: 12, Failed: 3}}})
		}
	}
	all = append(all, &round{Fault: kill, Via: "Agents", Clients: traffic.Clients{New: traffic.Seen{Gap: 14}}})
	page := string(trafficPage(all))
	expect.Containsf(t, page, "\n|agent and application killed|Endpoints|1|12/12|3/3|0/0|0/0|0/0|0/0|\n", "page")
	expect.Containsf(t, page, "\n|agent and application killed|Agents|2|12/14|0/3|0/0|", "page")
	expect.Equalf(t, strings.Count(page, "|Agents|1|"), len(trafficKinds)-2, "other faults")
	if strings.Contains(page, "no fault") {
		t.Errorf("the page has a fault without rounds:\n%s", page)
	}
}
