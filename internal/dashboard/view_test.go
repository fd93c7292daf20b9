package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestHealth(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for name, c := range map[string]struct {
		available, ready, degraded, progressing metav1.ConditionStatus
		want                                    dashboard.Health
	}{
		"all is well":                              {yes, yes, no, no, dashboard.Healthy},
		"a member is down":                         {yes, yes, yes, no, dashboard.Degraded},
		"no coordinator, and members are down":     {no, no, yes, no, dashboard.Unavailable},
		"a new member list":                        {yes, no, no, yes, dashboard.Updating},
		"a new member list while a member is down": {yes, no, yes, yes, dashboard.Degraded},
		"the Service points elsewhere":             {yes, no, no, no, dashboard.Degraded},
		"the operator does not know":               {unknown, unknown, no, no, dashboard.Unknown},
		"the operator has not seen the group":      {"", "", "", "", dashboard.Unknown},
	} {
		g := &v1.ElectionGroup{}
		for of, status := range map[v1.ConditionType]metav1.ConditionStatus{
			v1.ConditionAvailable: c.available, v1.ConditionReady: c.ready, v1.ConditionDegraded: c.degraded,
			v1.ConditionProgressing: c.progressing,
		} {
			if status != "" {
				g.Status.Conditions = append(g.Status.Conditions, metav1.Condition{Type: string(of), Status: status})
			}
		}
		expect.Equalf(t, dashboard.NewSummary(g, time.Now()).Health, c.want, "%s", name)
	}
	gone := &v1.ElectionGroup{}
	gone.Status.ReadyMembers = new(int32(0))
	gone.Status.Conditions = []metav1.Condition{
		{Type: string(v1.ConditionAvailable), Status: unknown},
		{Type: string(v1.ConditionAgentsConnected), Status: no, Reason: string(v1.ReasonPodsMissing)},
	}
	expect.Equalf(t, dashboard.NewSummary(gone, time.Now()).Health, dashboard.Unavailable, "all pods are gone")
}

// TestEndedTenures: the overview counts the failures of the last hour, and knows whether the status
// retains all of them.
func TestEndedTenures(t *testing.T) {
	now := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	ago := func(minutes int) *metav1.MicroTime {
		return new(metav1.NewMicroTime(now.Add(-time.Duration(minutes) * time.Minute)))
	}
	for name, c := range map[string]struct {
		history []v1.Tenure
		want    int
		more    bool
	}{
		"no election":      {nil, 0, false},
		"the first tenure": {[]v1.Tenure{{Number: 1, From: *ago(5)}}, 0, false},
		"one end, and one before the hour": {
			[]v1.Tenure{{Number: 3, From: *ago(59)}, {Number: 2, From: *ago(70), Until: ago(
				59), EndReason: v1.EndCrash}, {Number: 1, From: *ago(90), Until: ago(71), EndReason: v1.EndCrash}}, 1, false,
		},
		"no coordinator now": {[]v1.Tenure{{Number: 1, From: *ago(50), Until: ago(1), EndReason: v1.EndCrash}}, 1, false},
		"a planned end": {
			[]v1.Tenure{{Number: 2, From: *ago(5)}, {Number: 1, From: *ago(90), Until: ago(6), EndReason: v1.EndPreempted}},
			0, false,
		},
		"an earlier end that is not known": {
			[]v1.Tenure{{Number: 9, From: *ago(5)}, {Number: 8, From: *ago(50), Until: ago(6), EndReason: v1.EndCrash}}, 1, true,
		},
		"the oldest known began before the hour": {
			[]v1.Tenure{{Number: 9, From: *ago(5)}, {Number: 8, From: *ago(70), Until: ago(6), EndReason: v1.EndCrash}},
			1, false,
		},
	} {
		g := &v1.ElectionGroup{}
		g.Status.History = c.history
		if s := dashboard.NewSummary(g, now); len(s.Ended) != c.want || s.EndedMore != c.more {
			t.Errorf("%s: got %v, and more: %t, want %d, and more: %t", name, s.Ended, s.EndedMore, c.want, c.more)
		}
	}
}

// TestFlapping: five failures in ten minutes.
func TestFlapping(t *testing.T) {
	now := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	g := &v1.ElectionGroup{}
	for i := range 7 {
		until := metav1.NewMicroTime(now.Add(-time.Duration(i) * 2 * time.Minute))
		g.Status.History = append(g.Status.History, v1.Tenure{Until: &until, EndReason: v1.EndLapse})
	}
	if got, want := dashboard.NewSummary(g, now).FlapsUntil, now.Add(2*time.Minute); !got.Equal(want) {
		t.Errorf("got a group that flaps until %s, want %s: the fifth failure was eight minutes ago", got, want)
	}
	if got := dashboard.NewDetail(g, now).Warnings; len(got) != 1 || got[0].Reason != "Flapping" {
		t.Errorf("got warnings %v, want that it flaps", got)
	}
	g.Status.History[1].EndReason = v1.EndPreempted
	if got := dashboard.NewSummary(g, now).FlapsUntil; !got.IsZero() {
		t.Errorf("got a group that flaps until %s, want none: one of five ends was planned", got)
	}
}

// TestDetail: the nodes have the order of the ring, the rows that of the priorities.
func TestDetail(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC))
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	g.Spec.Algorithm = "RingSkip"
	g.Status = v1.ElectionGroupStatus{
		ObservedGeneration: 1, Members: new(int32(3)), ReadyMembers: new(int32(2)), Term: 7,
		Coordinator: &v1.Coordinator{Pod: "b", Priority: 20, Term: 7, ElectedAt: at},
		Protocol: v1.ProtocolState{MemberList: &v1.MemberList{
			Version: 1, State: v1.ListAdopting,
			Members: []v1.Member{{Pod: "b", Priority: 20}, {Pod: "c", Priority: 30}, {Pod: "a", Priority: 10}},
		}},
		Processes: []v1.Process{
			{Pod: "c", Priority: 30, Status: v1.ProcessCrashed, Reason: v1.ProcessPodMissing, Message: "There is no pod"},
			{Pod: "b", Priority: 20, Status: v1.ProcessCoordinator, Node: "node-2", Zone: "east"},
			{Pod: "a", Priority: 10, Status: v1.ProcessNormal},
		},
		History: []v1.Tenure{
			{Number: 3, Pod: "b", Term: 7, From: at, GapMicros: new(int64(4800))},
			{Number: 2, Pod: "c", Term: 6, From: at, Until: &at, EndReason: v1.EndCrash, GapMicros: new(int64(20_000_000))},
			{Number: 1, Pod: "b", Term: 5, From: at, Until: &at, EndReason: v1.EndSilence},
		},
	}
	d := dashboard.NewDetail(g, at.Time)
	if len(d.Nodes) != 3 || d.Nodes[0].Pod != "b" || d.Nodes[2].Pod != "a" || d.Processes[0].Pod != "c" || !d.Ring ||
		!d.Adopting || d.Ordinal != "3rd" {
		t.Errorf("got %+v, want a ring b, c, a in the 3rd election", d)
	}
	if len(d.Places) != 1 || d.Places[0].Node != "node-2" || d.Places[0].Zone != "east" ||
		d.Places[0].Coordinators[0] != "bank/ledger" || d.Places[0].Stops[0] != "bank/ledger" {
		t.Errorf("got places %+v, want node-2, which stops the group", d.Places)
	}
	if got, want := d.Description,
		"The members form a ring. 2 of 3 members are up. b is the coordinator. c is crashed."; got != want {
		t.Errorf("got description %q, want %q", got, want)
	}
	if d.Tenures[1].End != "c crashed" || d.Tenures[0].Gap != "4.8 ms" || !d.Tenures[0].Until.IsZero() {
		t.Errorf("got tenures %+v", d.Tenures)
	}
	if d.Failovers == nil || d.Failovers.Text != "2 failovers: median 20.0 s, longest 20.0 s" ||
		d.Failovers.Buckets[2].Count != 1 || d.Failovers.Buckets[9].Count != 1 {
		t.Errorf("got histogram %+v", d.Failovers)
	}
	if d.Tenures[0].Failure || !d.Tenures[1].Failure {
		t.Errorf("got tenures %+v, want one that ended by a failure", d.Tenures)
	}
	g.Status.History[2].EndReason = v1.EndPreempted
	const want = "2 failovers: median 20.0 s, longest 20.0 s; 1 after a failure: 4.8 ms"
	expect.Equal(t, dashboard.NewDetail(g, at.Time).Failovers.Text, want)
	empty := dashboard.NewDetail(&v1.ElectionGroup{}, at.Time)
	if empty.Failovers != nil || empty.Nodes == nil || empty.Processes == nil ||
		empty.Tenures == nil || len(empty.Problems) != 1 {
		t.Errorf("got %+v of a new group, want empty lists, and the notice that the operator has not seen it", empty)
	}
}

// TestGroupsThatWereNeverRead: until the groups have been read, nobody may conclude that there are none.
func TestGroupsThatWereNeverRead(t *testing.T) {
	store := dashboard.NewStore()
	lost := dashboard.Connection{State: dashboard.Lost, Error: "forbidden"}
	store.SetConnection(lost)
	expect.Containsf(t, readEvents(t, store), `{"state":"connecting","error":"forbidden"}`, "events")
	store.Replace(nil)
	store.SetConnection(lost)
	expect.Containsf(t, readEvents(t, store), `{"state":"lost","error":"forbidden"}`, "events")
}

// readEvents returns the first events of the overview.
func readEvents(t *testing.T, store *dashboard.Store) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // The page is closed when it has these.
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:7377/events", http.NoBody)
	recorder := httptest.NewRecorder()
	dashboard.NewHandler(store, 7377, nil, "").ServeHTTP(recorder, request)
	return recorder.Body.String()
}
