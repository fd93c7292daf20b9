package catalog_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The catalog describes what the machines do: on a ring all messages go to the
// successor, and where recovery starts an election, it does.
func TestCatalogDescribesMachines(t *testing.T) {
	roster, err := election.NewRoster(1, []election.Member{{ID: 2, Priority: 2}, {ID: 3, Priority: 3}, {ID: 1, Priority: 1}})
	must.Succeed(t, err)
	for _, a := range catalog.All() {
		m, err := a.New(election.Config{Self: 2, Roster: roster, Term: 1, Timing: election.DefaultTiming(latency, 0)})
		must.Succeedf(t, err, "%s", a.Name)
		var out election.Output
		m.Step(election.Input{Kind: election.Recover}, &out)
		started := slices.ContainsFunc(out.Events, func(e election.Event) bool { return e.Kind == election.Started })
		if started != a.RecoveryStarts {
			t.Errorf("%s: a recovered process starts an election: %v, want %v", a.Name, started, a.RecoveryStarts)
		}
		out.Reset()
		m.Step(election.Input{Kind: election.Campaign}, &out)
		m.Step(election.Input{Kind: election.Receive, Message: election.Message{
			Kind: out.Send[0].Kind, From: 1, To: 2, Term: 7, Origin: 1, Subject: 1, Hops: 1, List: []election.ID{1},
		}}, &out)
		for _, sent := range out.Send {
			if a.Ring && sent.To != 3 {
				t.Errorf("%s: on a ring 2 3 1, 2 sends %s", a.Name, sent.Describe())
			}
		}
		if len(out.Send) < 2 {
			t.Errorf("%s: sent only %v", a.Name, out.Send)
		}
	}
}

// "The control part of a failed process still forwards" where the catalog says
// so: then every place of the ring is passed, and no process is skipped.
func TestFailedProcessesForward(t *testing.T) {
	for _, a := range catalog.All() {
		if !a.Ring {
			continue
		}
		o := run(t, sim.Scenario{
			Algorithm: a.Name, Processes: 6, Crashed: []election.ID{6, 3}, Initiators: []election.ID{2},
		})
		if forwards := o.Skipped == 0; forwards != a.DeadForward || o.Coordinator != 5 {
			t.Errorf("%s: got %d skipped, coordinator %d; failed processes forward: %v", a.Name, o.Skipped, o.Coordinator, a.DeadForward)
		}
	}
}

// With real connections all processes detect the crash at the same instant.
// With a stagger, the highest process acts at once and the others never have
// to: the lowest possible number of messages. Without a stagger, the bully is
// in its worst case.
func TestStagger(t *testing.T) {
	for n := 3; n <= 40; n++ {
		floor := map[string]int{
			"Bully": n - 2, "StatusTable": n - 2, "RingAllIDs": n * n, "RingChampion": 2 * n,
			"RingActiveList": (n - 1) * (n - 1), "RingSkip": 2 * (n - 1),
		}
		for _, name := range catalog.Names() {
			s := crash(name, n, 1)
			for id := election.ID(2); int(id) < n; id++ {
				s.Initiators = append(s.Initiators, id)
			}
			together := run(t, s).Total
			// Long enough for the election of the first process, for any order of the ring.
			s.Stagger = 10 * election.Tick(n) * latency
			expect.Equalf(t, run(t, s).Total, floor[name], "n=%d, %s: messages with a stagger", n, name)
			if n > 3 && name == "Bully" && together <= floor[name] {
				t.Errorf("n=%d: got %d messages of the bully without a stagger, want more than with it", n, together)
			}
		}
	}
}

// A process on a ring skips an addressee with an undelivered message that it
// sent itself to another member. It refuses any other message that is reported
// as undelivered.
func TestOnlyOwnUndeliveredMessagesSkip(t *testing.T) {
	for _, a := range catalog.All() {
		if !a.Ring {
			continue
		}
		m := member(t, a, 1)
		var out election.Output
		m.Step(election.Input{Kind: election.Campaign}, &out)
		sent := out.Send[0]
		for _, to := range [][2]election.ID{{1, 3}, {2, 9}, {2, 2}} {
			out.Reset()
			odd := sent
			odd.From, odd.To = to[0], to[1]
			m.Step(election.Input{Kind: election.Undelivered, Message: odd}, &out)
			if len(out.Send) > 0 || len(out.Events) != 1 || out.Events[0].Kind != election.Refused {
				t.Errorf("%s, %q undelivered: got %+v, want a refusal", a.Name, odd.Describe(), out)
			}
		}
		out.Reset()
		m.Step(election.Input{Kind: election.Undelivered, Message: sent}, &out)
		if len(out.Send) != 1 || out.Send[0].To != 4 {
			t.Errorf("%s, undelivered to 3: got %+v, want one message to 4", a.Name, out)
		}
	}
}
