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

// A tick before the deadline ends no wait, neither of an election nor of a
// recovery. In a process that waits for nothing it starts nothing.
func TestEarlyTickChangesNothing(t *testing.T) {
	for _, a := range catalog.All() {
		for _, begin := range []election.InputKind{election.NoInput, election.Campaign, election.Recover} {
			m := member(t, a, 1)
			var out election.Output
			m.Step(election.Input{Kind: begin, Now: 3}, &out)
			due := m.Deadline()
			if (due == election.Never) != (begin == election.NoInput) {
				t.Fatalf("%s: got deadline %d after the input %s", a.Name, due, begin)
			}
			out.Reset()
			before := string(m.Encode(nil, due-1))
			m.Step(election.Input{Kind: election.TimePassed, Now: due - 1}, &out)
			if len(out.Send)+len(out.Events) > 0 || m.Deadline() != due || string(m.Encode(nil, due-1)) != before {
				t.Errorf("%s, after the input %s: got %+v from an early tick, want no change", a.Name, begin, out)
			}
		}
	}
}

// member returns process 2 of four.
func member(t *testing.T, a catalog.Algorithm, term election.Term) election.Machine {
	t.Helper()
	roster, err := election.NewRoster(1, []election.Member{
		{ID: 1, Priority: 1}, {ID: 2, Priority: 2}, {ID: 3, Priority: 3}, {ID: 4, Priority: 4},
	})
	must.Succeed(t, err)
	m, err := a.New(election.Config{
		Self: 2, Roster: roster, Term: term, Coordinator: 4, Timing: election.DefaultTiming(latency, 0),
	})
	must.Succeed(t, err)
	return m
}

// A process that waits in vain in the highest term has no further term. It must
// stop waiting rather than request ticks forever.
func TestNoWaitBeyondHighestTerm(t *testing.T) {
	for _, a := range catalog.All() {
		m := member(t, a, election.MaxTerm-1)
		var out election.Output
		m.Step(election.Input{Kind: election.Campaign}, &out)
		if !a.Ring {
			m.Step(election.Input{Kind: election.Receive, Message: election.Message{
				Kind: election.OK, From: out.Send[0].To, To: 2, Term: election.MaxTerm,
			}}, &out)
		}
		out.Reset()
		m.Step(election.Input{Kind: election.TimePassed, Now: m.Deadline()}, &out)
		if s := m.Status(); len(out.Send) > 0 || m.Deadline() != election.Never || s.Electing || s.Term != election.MaxTerm {
			t.Errorf("%s: got %+v, deadline %d, messages %v", a.Name, s, m.Deadline(), out.Send)
		}
	}
}

// The suspicion or the sign of life of another process, or the loss of the
// coordinator, is no outcome: a process that waits for one continues to wait.
func TestInputsAboutOthersDontEndWait(t *testing.T) {
	for _, a := range catalog.All() {
		for _, begin := range []election.InputKind{election.Campaign, election.Recover} {
			m := member(t, a, 1)
			var out election.Output
			m.Step(election.Input{Kind: begin, Now: 3}, &out)
			due := m.Deadline()
			for _, in := range []election.Input{
				{Kind: election.Suspect, Peer: 1},
				{Kind: election.Restore, Peer: 1},
				{Kind: election.Suspect, Peer: 1, Ineligible: true},
				{Kind: election.Follow, Term: 1},
			} {
				out.Reset()
				in.Now = 4
				m.Step(in, &out)
				if !m.Status().Electing || m.Deadline() != due || len(out.Send) > 0 {
					t.Errorf("%s, after the input %s: got an end of the wait by %q, want none", a.Name, begin, in.Describe())
				}
			}
		}
	}
}

// A STALE shows that there has been an election in a newer term. A coordinator waits for the outcome and starts an
// election if it receives none. The other processes only adopt the term.
func TestOnlyCoordinatorWaitsAfterNewerTerm(t *testing.T) {
	for _, a := range catalog.All() {
		for _, coordinator := range []bool{false, true} {
			m := member(t, a, 1)
			var out election.Output
			if coordinator {
				m.Step(election.Input{Kind: election.Follow, Peer: 2, Term: 1}, &out)
			}
			m.Step(election.Input{Kind: election.Receive, Now: 5, Message: election.Message{
				Kind: election.Stale, From: 1, To: 2, Term: 9,
			}}, &out)
			if s := m.Status(); s.Term != 9 || s.Electing != coordinator || (m.Deadline() != election.Never) != coordinator {
				t.Errorf("%s, coordinator %v: after a STALE got %+v, deadline %d", a.Name, coordinator, s, m.Deadline())
			}
		}
	}
}

// A process that waited in vain and has started again waits as long as the first time.
func TestSecondWaitIsAsLongAsFirst(t *testing.T) {
	for _, a := range catalog.All() {
		if !a.Ring {
			continue // there it depends on which process answered
		}
		m := member(t, a, 1)
		var out election.Output
		m.Step(election.Input{Kind: election.Campaign}, &out)
		first := m.Deadline()
		m.Step(election.Input{Kind: election.TimePassed, Now: first}, &out)
		expect.Equalf(t, m.Deadline(), 2*first, "%s: second deadline", a.Name)
	}
}

// TestTimingCanChange checks that the next election uses the new timing, and that an invalid timing changes nothing.
func TestTimingCanChange(t *testing.T) {
	for _, algorithm := range catalog.All() {
		t.Run(algorithm.Name, func(t *testing.T) {
			wait := func(timings ...election.Timing) election.Tick {
				roster, err := election.NewRoster(1,
					[]election.Member{{ID: 1, Priority: 1}, {ID: 2, Priority: 2}, {ID: 3, Priority: 3}})
				must.Succeed(t, err)
				m, err := algorithm.New(election.Config{Self: 1, Roster: roster, Timing: election.DefaultTiming(2, 1)})
				must.Succeed(t, err)
				var out election.Output
				for _, timing := range timings {
					m.Step(election.Input{Kind: election.Retime, Timing: &timing}, &out)
				}
				m.Step(election.Input{Kind: election.Retime}, &out)
				m.Step(election.Input{Kind: election.Campaign, Term: 1}, &out)
				return m.Deadline()
			}
			short, long := wait(), wait(election.DefaultTiming(20, 10))
			expect.AtLeastf(t, long, 8*short+1, "wait for delays ten times as long")
			expect.Equalf(t, wait(election.Timing{Reply: 100, Takeover: 1, Hop: 100}), short, "invalid timing: wait")
		})
	}
}

// The catalog describes what the machines do: on a ring all messages go to the
// successor, and where recovery starts an election, it does.
func TestCatalogDescribesMachines(t *testing.T) {
	roster, err := election.NewRoster(1,
		[]election.Member{{ID: 2, Priority: 2}, {ID: 3, Priority: 3}, {ID: 1, Priority: 1}})
	must.Succeed(t, err)
	for _, a := range catalog.All() {
		m, err := a.New(election.Config{Self: 2, Roster: roster, Term: 1, Timing: election.DefaultTiming(latency, 0)})
		must.Succeedf(t, err, "%s", a.Name)
		var out election.Output
		m.Step(election.Input{Kind: election.Recover}, &out)
		started := slices.ContainsFunc(out.Events, func(e election.Event) bool { return e.Kind == election.Started })
		expect.Equalf(t, started, a.RecoveryStarts, "%s: a recovered process starts an election", a.Name)
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
			t.Errorf("%s: got %d skipped, coordinator %d; failed processes forward: %v", a.Name, o.Skipped,
				o.Coordinator, a.DeadForward)
		}
	}
}

// With real connections all processes detect the crash at the same instant. With a stagger, the highest process acts at
// once and the others never have to: the lowest possible number of messages. Without a stagger, the bully is in its
// worst case.
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

// A process on a ring skips an addressee with an undelivered message that it sent itself to another member. It refuses
// any other message that is reported as undelivered.
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
