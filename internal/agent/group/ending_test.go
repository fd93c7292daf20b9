package group

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// formatEnding formats the end of a tenure, as in "c in term 7: crash, gap 5ms".
func formatEnding(e *control.Ending) string {
	if e == nil {
		return "none"
	}
	text := fmt.Sprintf("%s in term %d: %s", e.Coordinator, e.Term, e.Cause)
	if e.GapMicros != nil {
		text += fmt.Sprint(", gap ", time.Duration(*e.GapMicros)*time.Microsecond)
	}
	return text
}

// TestEndings: member 2, b, observes the end of a tenure of 3, c. Time is in milliseconds.
func TestEndings(t *testing.T) {
	at := func(millis int) election.Tick { return election.Tick(time.Duration(millis) * time.Millisecond) }
	status := func(id election.ID, term election.Term) election.Status {
		return election.Status{Coordinator: id, Term: term}
	}
	ended := func(millis int, peer election.ID) election.Input {
		return election.Input{Kind: election.Ended, Now: at(millis), Peer: peer}
	}
	passed := func(millis int) election.Input { return election.Input{Kind: election.TimePassed, Now: at(millis)} }
	receive := func(millis int, from election.ID, kind election.Kind, term election.Term) election.Input {
		message := election.Message{From: from, Kind: kind, Term: term}
		return election.Input{Kind: election.Receive, Now: at(millis), Message: message}
	}
	resigned := []election.Event{{Kind: election.OfficeResigned}}
	type step struct {
		in     election.Input
		status election.Status
		events []election.Event
	}
	begin := []step{
		{receive(0, 3, election.Beat, 0), status(3, 7), nil}, {receive(100, 3, election.Beat, 0), status(3, 7), nil},
	}
	for name, c := range map[string]struct {
		steps []step
		want  string
	}{
		"no tenure has ended": {nil, "none"},
		"a crash": {[]step{
			{ended(150, 3), status(election.None, 7), nil},
			{receive(155, 1, election.NoKind, 0), status(2, 8), nil},
		}, "c in term 7: crash, gap 5ms"},
		"no coordinator yet": {[]step{{ended(150, 3), status(election.None, 7), nil}}, "c in term 7: crash"},
		"silence lasts since the last message": {[]step{
			{passed(500), status(election.None, 7), nil},
			{receive(510, 1, election.NoKind, 0), status(1, 8), nil},
		}, "c in term 7: silence, gap 410ms"},
		"the coordinator resigned": {[]step{
			{receive(150, 3, election.Resigned, 0), status(election.None, 7), nil},
			{passed(151), status(2, 8), nil},
		}, "c in term 7: hand-over, gap 1ms"},
		"the next one is first": {[]step{{receive(150, 1, election.Beat, 0), status(1, 8), nil}}, "c in term 7: unknown"},
		"the coordinator resigned, and the next one is known already": {[]step{
			{receive(150, 3, election.Resigned, 0), status(1, 8), nil},
		}, "c in term 7: hand-over, gap 0s"},
		"the message of its coordinator arrives after that": {[]step{
			{receive(150, 1, election.Beat, 0), status(1, 8), nil},
			{receive(151, 3, election.Resigned, 7), status(1, 8), nil},
		}, "c in term 7: hand-over"},
		"a vote for the next coordinator is the first sign, and the message arrives late": {[]step{
			{receive(150, 1, election.Elect, 0), status(election.None, 7), nil},
			{receive(151, 3, election.Resigned, 7), status(election.None, 7), nil},
		}, "c in term 7: hand-over"},
		"another member notices the silence first": {[]step{
			{receive(150, 1, election.Elect, 0), status(election.None, 7), nil},
			{receive(151, 1, election.Beat, 0), status(1, 8), nil},
		}, "c in term 7: silence, gap 51ms"},
		"the coordinator was silent, and resigns much later": {[]step{
			{passed(500), status(election.None, 7), nil},
			{receive(60000, 3, election.Resigned, 7), status(1, 8), nil},
		}, "c in term 7: silence, gap 59.9s"},
		"a message of an earlier tenure arrives late": {[]step{
			{receive(150, 1, election.Beat, 0), status(1, 8), nil},
			{receive(151, 3, election.Resigned, 6), status(1, 8), nil},
			{receive(152, 2, election.Resigned, 7), status(1, 8), nil}, // a claim in the same term
		}, "c in term 7: unknown"},
		"it leads another term": {[]step{{receive(150, 3, election.Beat, 0), status(3, 8), nil}}, "c in term 7: unknown"},
		"the member list changed": {[]step{
			{election.Input{Kind: election.Adopt, Now: at(150)}, status(election.None, 7), nil},
		}, "c in term 7: membership"},
		"this process hands over when its application has not stopped in time": {[]step{
			{passed(150), status(2, 8), nil},
			{passed(200), status(election.None, 8), resigned},
		}, "b in term 8: hand-over"},
		"why it handed over before doesn't count": {[]step{
			{passed(150), status(2, 8), nil},
			{election.Input{Kind: election.Adopt, Now: at(160)}, status(2, 8), []election.Event{{Kind: election.StopRequested}}},
			{passed(170), status(election.None, 8), resigned},
			{passed(180), status(2, 9), nil},
			{passed(200), status(election.None, 9), resigned},
		}, "b in term 9: hand-over"},
		"this process loses its lease": {[]step{
			{passed(150), status(2, 8), nil},
			{passed(200), status(election.None, 8), nil},
		}, "b in term 8: lapse"},
		"only the last tenure counts": {[]step{
			{ended(150, 3), status(election.None, 7), nil},
			{passed(155), status(1, 8), nil},
			{ended(250, 1), status(election.None, 8), nil},
		}, "a in term 8: crash"},
	} {
		names := newNames()
		for _, name := range []string{"a", "b", "c"} {
			names.add(name)
		}
		o, r := newObserver(&Metrics{}, 2, 0), journal.Record{}
		for _, s := range append(slices.Clip(begin), c.steps...) {
			r = journal.Record{Input: s.in, Events: s.events, Before: r.Status, Status: s.status}
			o.observe(&r)
		}
		expect.Equalf(t, formatEnding(o.last.report(names)), c.want, "%s", name)
	}
}

// TestAllMembersLearnWhy: the coordinator tells the others why it resigns, because it may not live long enough to
// report it.
func TestAllMembersLearnWhy(t *testing.T) {
	t.Parallel()
	adoptDemotionOfC := func(t *testing.T, cluster *cluster) {
		t.Helper()
		old := cluster.group("c").cfg.Group.List
		list := memberlist.List{
			Version: 2, Members: []memberlist.Member{member("a", 10), member("b", 20), member("c", 0)}, Previous: old.Bare(),
		}
		for _, name := range []string{"a", "b", "c"} {
			must.Succeed(t, cluster.group(name).adopt(testwait.Context(t), list, config.Provenance{}))
		}
	}
	for name, c := range map[string]struct {
		end         func(t *testing.T, cluster *cluster, c *Group)
		coordinator string
		want        control.EndCause
	}{
		"the probe of the application fails": {
			end: func(t *testing.T, _ *cluster, c *Group) { t.Helper(); reportUnhealthy(t, c) }, want: control.EndProbeFailed,
		},
		"the application ends":            {end: closeAfter(true, 1, 1), want: control.EndSessionClosed},
		"it ends long after a pause":      {end: closeAfter(true, 1, 3, 1, 1, 1, 1, 1), want: control.EndSessionClosed},
		"it ends, and had only confirmed": {end: closeAfter(false, 3), want: control.EndSessionClosed},
		"it or its agent was paused":      {end: closeAfter(true, 1, 3), want: control.EndNotRenewed},
		"a renewal waited during a pause": {end: closeAfter(true, 1, 3, 0, 0), want: control.EndNotRenewed},
		"the application hangs": {
			end:  func(t *testing.T, _ *cluster, c *Group) { t.Helper(); nextEvent(t, openSessionThat(t, c, true), Lead) },
			want: control.EndNotRenewed,
		},
		"the operator excludes it": {
			end: func(t *testing.T, _ *cluster, c *Group) {
				t.Helper()
				must.Succeed(t, retryStepDown(testwait.Context(t), c.Exclude))
			},
			want: control.EndExcluded,
		},
		"a user requests it": {
			end: func(t *testing.T, _ *cluster, c *Group) {
				t.Helper()
				must.Succeed(t, retryStepDown(testwait.Context(t), c.stepDownTo("")))
			},
			want: control.EndStepDown,
		},
		"the agent is told to end": {
			end:  func(t *testing.T, _ *cluster, c *Group) { t.Helper(); c.Leave(testwait.Context(t), control.EndStopped) },
			want: control.EndStopped,
		},
		"a higher member returns": {
			end: func(t *testing.T, cluster *cluster, c *Group) {
				t.Helper()
				reportUnhealthy(t, c)
				waitFor(t, cluster.group("b"), "b leads", isLeading)
				must.Succeed(t, c.ReportProbe(testwait.Context(t), true))
			},
			coordinator: "b", want: control.EndPreempted,
		},
		"the list demotes it": {
			end:  func(t *testing.T, cluster *cluster, _ *Group) { t.Helper(); adoptDemotionOfC(t, cluster) },
			want: control.EndMembership,
		},
	} {
		runInVirtualTime(t, name, func(t *testing.T) {
			logs := map[string]*reportLog{}
			cluster := newTunedCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(cfg *Config) {
				logs[cfg.Self] = &reportLog{wake: make(chan struct{}, 1)}
				cfg.OnReport = logs[cfg.Self].add
			})
			cluster.awaitFollowers("c", "a", "b")
			c.end(t, cluster, cluster.group("c"))
			for name, log := range logs {
				if name == "c" && c.want == control.EndStopped {
					continue
				}
				log.waitForAny(t, name+" reports the end", func(r control.Report) bool {
					return r.Ended != nil && r.Ended.Coordinator == cmp.Or(c.coordinator, "c") && r.Ended.Cause == c.want
				})
			}
			recorded, err := cluster.group("a").Journal(testwait.Context(t))
			must.Succeed(t, err)
			if !slices.ContainsFunc(recorded.Steps, func(s journal.Step) bool { return s.Cause == c.want }) {
				t.Errorf("got journal %+v, want a step with the cause %s", recorded.Steps, c.want)
			}
		})
	}
}

// closeAfter returns a function that leads in a session, renews it before each of these quarters of a lease, and then
// closes it.
func closeAfter(renews bool, quarters ...int) func(*testing.T, *cluster, *Group) {
	return func(t *testing.T, _ *cluster, c *Group) {
		t.Helper()
		s := openSessionThat(t, c, renews)
		nextEvent(t, s, Lead)
		for _, wait := range quarters {
			renew(t, s)
			time.Sleep(time.Duration(wait) * testLease / 4)
		}
		s.Close()
	}
}

// TestUnknownCauseIsHandOver: a peer may send any number.
func TestUnknownCauseIsHandOver(t *testing.T) {
	for number, want := range map[uint32]control.EndCause{
		0: control.EndHandOver, uint32(control.EndCrash): control.EndHandOver,
		uint32(control.EndHandOver): control.EndHandOver,
		uint32(control.EndLapse):    control.EndLapse, uint32(control.EndStopped): control.EndStopped,
		uint32(control.EndUnknown): control.EndHandOver, 1<<32 - 1: control.EndHandOver,
	} {
		o := newObserver(&Metrics{}, 2, 0)
		resigned := election.Input{Kind: election.Receive, Message: election.Message{From: 3, Kind: election.Resigned}}
		o.announced = announcedCause(&wire.Message{EndCause: number})
		o.observe(&journal.Record{
			Input: resigned, Before: election.Status{Coordinator: 3, Term: 7}, Status: election.Status{Term: 7},
		})
		expect.Equalf(t, o.last.cause, want, "%d", number)
	}
}

// TestRefusedCoordinatorIsSuspected: an agent doesn't wait until a coordinator is silent whose address refuses
// connections. Of any other process, that changes nothing.
func TestRefusedCoordinatorIsSuspected(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, map[string]int{"a": 1, "b": 2, "c": 3}, func(*config.Group) {})
		c.awaitFollowers("c", "a", "b")
		c.isolate("c")
		a := c.group("a")
		for _, step := range []struct{ refused, coordinator string }{{"b", "c"}, {"a", "c"}, {"c", ""}} {
			a.PeerRefused(step.refused)
			synctest.Wait()
			expect.Equalf(t, a.Leader().Coordinator, step.coordinator, "after %s has refused: a follows", step.refused)
		}
	})
}
