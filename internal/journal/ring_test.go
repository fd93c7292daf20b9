package journal

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func name(id election.ID) string {
	if id == election.None {
		return ""
	}
	return fmt.Sprint("p", id)
}

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func steps(r *Ring) []Step {
	return r.Steps(name, func(t election.Tick) time.Time { return epoch.Add(time.Duration(t)) })
}

// recorder records steps, of which it knows the coordinator after each.
type recorder struct {
	Ring

	status election.Status
}

func (r *recorder) record(in *election.Input, send []election.Message, events []election.Event, c election.ID,
	cause control.EndCause,
) {
	before := r.status
	r.status.Coordinator = c
	r.Record(&Record{Input: *in, Send: send, Events: events, Before: before, Status: r.status, Cause: cause})
}

func receive(now election.Tick, m election.Message) *election.Input {
	return &election.Input{Kind: election.Receive, Now: now, Message: m}
}

func beat(term election.Term, lamport uint64) election.Message {
	return election.Message{
		Kind: election.Beat, From: 2, To: 1, Term: term, Subject: 2, Lamport: lamport,
		Hold: election.Hold{Held: true, Life: 7},
	}
}

func grant(term election.Term, lamport uint64) election.Message {
	return election.Message{Kind: election.Grant, From: 1, To: 2, Term: term, Subject: 2, Lamport: lamport}
}

// The first heartbeat of a tenure, and the grant that answers it, are recorded. The others
// aren't, until the next tenure.
func TestRepeatedHeartbeatsAreNotRecorded(t *testing.T) {
	r := new(recorder)
	for n := range uint64(5) {
		r.record(receive(election.Tick(n), beat(3, n)), []election.Message{grant(3, n)}, nil, 2, 0)
	}
	r.record(&election.Input{Kind: election.TimePassed, Now: 5}, nil, nil, 2, 0)
	r.record(receive(6, beat(3, 6)), nil, []election.Event{{Kind: election.Outdated, Peer: 2}}, 2, 0)
	if got := steps(&r.Ring); len(got) != 1 || len(got[0].Sent) != 1 || got[0].Message.Lamport != 0 {
		t.Fatalf("got %+v, want the first heartbeat and its grant", got)
	}
	lost := []election.Event{{Kind: election.MarkedCrashed, Peer: 2, Term: 3}}
	r.record(&election.Input{Kind: election.TimePassed, Now: 7}, nil, lost, election.None, 0)
	r.record(receive(8, beat(3, 8)), []election.Message{grant(3, 8)}, nil, 2, 0)
	got := steps(&r.Ring)
	if len(got) != 3 || got[1].Input != "tick" || got[1].Events[0].Peer != "p2" ||
		got[2].Message.Lamport != 8 || len(got[2].Sent) != 1 {
		t.Errorf("got %+v, want the loss and the first heartbeat after it", got)
	}
}

// A probe and the answer to it alternate, and both are recorded once.
func TestProbesOfALongVacancyAreRecordedOnce(t *testing.T) {
	r := new(recorder)
	for n := range election.Tick(2 * size) {
		probe := election.Message{Kind: election.Probe, From: 2, To: 1}
		answer := election.Message{Kind: election.Probe, From: 1, To: 2, Hold: election.Hold{Held: true}}
		r.record(receive(n, probe), []election.Message{answer}, nil, election.None, 0)
		probe.Hold.Held, answer.Hold.Held = true, false
		r.record(receive(n, probe), []election.Message{answer}, nil, election.None, 0)
	}
	expect.Equalf(t, len(steps(&r.Ring)), 2, "steps (a probe and an answer)")
}

func TestStepsHaveWholeMessages(t *testing.T) {
	r := new(recorder)
	sent := election.Message{
		Kind: election.Election, From: 1, To: 3, Term: 4, Lamport: 9, Subject: 2, Origin: 1,
		Hops: 2, List: []election.ID{1, 3},
		Hold: election.Hold{Life: 5, Held: true, Ready: true, Ineligible: true},
	}
	r.record(&election.Input{Kind: election.Ended, Peer: 2, Now: 100}, []election.Message{sent},
		[]election.Event{{Kind: election.TenureStarted, Peer: 1, Term: 4, Token: 11}}, election.None, control.EndNotRenewed)
	want := []Step{{
		At: epoch.Add(100), Input: "gone", Peer: "p2", Cause: control.EndNotRenewed,
		Events: []Event{{Kind: "tenure", Peer: "p1", Term: 4, Token: 11}},
		Sent: []Message{{
			Kind: "ELECTION", From: "p1", To: "p3", Term: 4, Lamport: 9, Life: 5, Subject: "p2", Origin: "p1", Hops: 2,
			List: []string{"p1", "p3"}, Held: true, Ready: true, Ineligible: true,
		}},
	}}
	expect.DeepEqualf(t, steps(&r.Ring), want, "steps")
}

// A full ring has the newest steps, and only complete ones. A list that was overwritten is left out.
func TestFullRingReplacesTheOldestSteps(t *testing.T) {
	r := new(recorder)
	long := make([]election.ID, listSize/4)
	for n := range election.Tick(size) { // three entries each
		m := election.Message{Kind: election.OK, From: 1, To: 2, Lamport: uint64(n), List: long}
		in := receive(n, election.Message{Kind: election.Election, From: 2, To: 1})
		r.record(in, []election.Message{m}, []election.Event{{Kind: election.Started}}, election.None, 0)
	}
	got := steps(&r.Ring)
	if r.Omitted() != 2*size || len(got) != size/3 || got[len(got)-1].Sent[0].Lamport != size-1 {
		t.Fatalf("got %d steps and %d omitted entries, want the newest %d and %d", len(got), r.Omitted(), size/3, 2*size)
	}
	for i, s := range got {
		if len(s.Events) != 1 || len(s.Sent) != 1 {
			t.Errorf("step %d: got %+v, want a whole step", i, s)
		}
		expect.Equalf(t, len(s.Sent[0].List) == len(long), i >= len(got)-4,
			"step %d: has its list, as only the newest four", i)
	}
}

func TestCloneIsIndependent(t *testing.T) {
	r := new(recorder)
	r.record(&election.Input{Kind: election.Recover}, nil, nil, election.None, 0)
	clone := r.Clone()
	r.record(&election.Input{Kind: election.StepDown}, nil, nil, election.None, 0)
	if got := steps(clone); len(got) != 1 || got[0].Input != "recover" {
		t.Errorf("got %+v, want the steps until the copy was made", got)
	}
}

// The journal is on the failover path.
func TestRecordingAllocatesNothing(t *testing.T) {
	r := new(recorder)
	sent := []election.Message{
		beat(3, 1), grant(3, 2), {Kind: election.Election, From: 1, To: 2, List: []election.ID{1, 2, 3}},
	}
	found := []election.Event{{Kind: election.MarkedCrashed, Peer: 2, Term: 3}}
	term := election.Term(0)
	r.record(receive(0, beat(0, 0)), sent, found, 2, 0) // makes room for the members
	if n := testing.AllocsPerRun(2*size, func() {
		term++
		r.record(receive(1, beat(term, 1)), sent, found, 2, 0)
		r.record(&election.Input{Kind: election.Ended, Peer: 2}, sent, found, election.None, 0)
	}); n > 0 {
		t.Errorf("got %v allocations for an election, want none", n)
	}
}
