package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
)

// fakeAgent is the agent of a coordinator, until it receives the request to step down.
type fakeAgent struct {
	// status and answer are the response to the request, and states are the events
	// that follow it.
	status int
	answer string
	states []string
	// journal is that of the agent. An older agent has none.
	journal string
	// successor is the one in the request, which closes requested.
	successor string
	requested chan struct{}
}

func (a *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/v1/groups/ledger/watch"):
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 1-1\ndata: {\"group\":\"ledger\",\"coordinator\":\"ledger-2\",\"term\":100}\n\n")
		w.(http.Flusher).Flush() //nolint:errcheck // httptest supports it
		select {
		case <-a.requested:
		case <-r.Context().Done():
		}
		for i, state := range a.states {
			fmt.Fprintf(w, "id: 1-%d\ndata: %s\n\n", i+2, state)
		}
		w.(http.Flusher).Flush() //nolint:errcheck // httptest supports it
		<-r.Context().Done()
	case r.Method == http.MethodPost && r.URL.Path == "/v1/groups/ledger/step-down":
		var request struct{ To string }
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.successor = request.To
		close(a.requested)
		w.WriteHeader(a.status)
		fmt.Fprint(w, a.answer)
	case a.journal != "" && r.URL.Path == "/v1/groups/ledger/journal":
		fmt.Fprint(w, a.journal)
	default:
		http.NotFound(w, r)
	}
}

func ledgerGroup() *v1.ElectionGroup {
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	g.Spec.Preemption = v1.Preemption{Policy: v1.PreemptWhenStable, StableSeconds: new(int32(7))}
	g.Status.Coordinator = &v1.Coordinator{Pod: "ledger-2", Priority: 30, Term: 100}
	for i := range int32(4) {
		g.Status.Processes = append(g.Status.Processes, v1.Process{Pod: fmt.Sprint("ledger-", 3-i), Priority: 10 * (3 - i), Status: v1.ProcessNormal})
	}
	g.Status.Processes = g.Status.Processes[1:] // ledger-2, -1 and -0, of which the last has priority 0
	g.Status.Processes[0].Priority, g.Status.Processes[1].Priority = 30, 20
	return g
}

// stepDown sends the request to this agent without a forwarded port.
func (a *fakeAgent) stepDown(t *testing.T, g *v1.ElectionGroup, to string) (string, error) {
	t.Helper()
	a.requested = make(chan struct{})
	agent := httptest.NewServer(a)
	defer agent.Close()
	defer agent.CloseClientConnections()
	var out bytes.Buffer
	err := stepDown(t.Context(), &out, g, to, func(_ context.Context, pod types.NamespacedName) (*portforward.Port, error) {
		if pod.String() != "bank/ledger-2" {
			t.Errorf("got a request to the agent of %s, want the coordinator's", pod)
		}
		return portforward.At(agent.URL, ""), nil
	})
	return out.String(), err
}

const (
	vacant    = `{"group":"ledger","coordinator":"","term":100}`
	successor = `{"group":"ledger","coordinator":"ledger-1","priority":20,"term":101}`
)

func TestStepDownPrintsTheNewCoordinatorAndTheFailoverTime(t *testing.T) {
	const preemption = "ledger-2 has a higher priority (30): it is ineligible for 7 s, then takes over again if it is healthy " +
		"(spec.preemption.policy: WhenStable)\n"
	for name, test := range map[string]struct {
		states []string
		change func(*v1.ElectionGroup)
		want   string
	}{
		"gap": {
			states: []string{vacant, successor},
			want:   `^ledger-1 leads in term 101; failover took [0-9.]+ ms\n` + regexp.QuoteMeta(preemption) + `$`,
		},
		"no gap": {
			states: []string{successor},
			want:   `^ledger-1 leads in term 101; no gap between the coordinators was observed\n` + regexp.QuoteMeta(preemption) + `$`,
		},
		"no preemption": {
			states: []string{successor},
			change: func(g *v1.ElectionGroup) { g.Spec.Preemption.Policy = v1.PreemptNever },
			want:   `^ledger-1 leads in term 101; no gap between the coordinators was observed\n$`,
		},
		"unknown gap": {
			want: `^ledger-1 leads in term 101\n` + regexp.QuoteMeta(preemption) + `$`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := ledgerGroup()
			if test.change != nil {
				test.change(g)
			}
			agent := fakeAgent{status: http.StatusOK, answer: successor, states: test.states}
			got, err := agent.stepDown(t, g, "ledger-1")
			if err != nil || !regexp.MustCompile(test.want).MatchString(got) {
				t.Errorf("got %q, %v, want %s", got, err, test.want)
			}
			if agent.successor != "ledger-1" {
				t.Errorf("got a request for %q, want ledger-1", agent.successor)
			}
		})
	}
}

func TestStepDownFailureIsOneLine(t *testing.T) {
	agent := fakeAgent{status: http.StatusConflict, answer: `{"error":"no member is ready to take over"}`}
	for name, test := range map[string]struct {
		change func(*v1.ElectionGroup)
		to     string
		want   string
		status int
	}{
		"refused": {
			want: "the agent in pod ledger-2 refused to step down: no member is ready to take over", status: 1,
		},
		"no coordinator": {
			change: func(g *v1.ElectionGroup) { g.Status.Coordinator = nil },
			want:   "group ledger has no coordinator to step down; for the reason, run: kubectl conclave explain ledger -n bank", status: 1,
		},
		"to itself": {to: "ledger-2", want: "--to must name another member: ledger-2 is the coordinator already", status: 2},
		"to a pod that is no member": {
			to:   "mail-0",
			want: `--to must be a member of ledger with a priority above 0 (ledger-1), got "mail-0"`, status: 2,
		},
		"to a member of priority 0": {
			to:   "ledger-0",
			want: `--to must be a member of ledger with a priority above 0 (ledger-1), got "ledger-0"`, status: 2,
		},
		"single member": {
			change: func(g *v1.ElectionGroup) { g.Status.Processes = g.Status.Processes[:1] }, to: "ledger-1",
			want: "--to: ledger has no other member with a priority above 0", status: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := ledgerGroup()
			if test.change != nil {
				test.change(g)
			}
			got, err := agent.stepDown(t, g, test.to)
			if err == nil || err.Error() != test.want || exitStatus(err) != test.status || got != "" {
				t.Errorf("got %q, %v (status %d), want %s (status %d)", got, err, exitStatus(err), test.want, test.status)
			}
		})
	}
}

func TestStepDownReportsTheErrorOfTheForwardedPort(t *testing.T) {
	agent := httptest.NewServer(http.NotFoundHandler())
	agent.Close()
	err := stepDown(t.Context(), &bytes.Buffer{}, ledgerGroup(), "", func(context.Context, types.NamespacedName) (*portforward.Port, error) {
		return portforward.At(agent.URL, "lost connection to pod"), nil
	})
	want := `^the agent in pod ledger-2 does not respond: .*connection refused \(lost connection to pod\)$`
	if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestFailoverTimeIsThatOfTheAgent: the events arrive at once, but the agent remembers the time between them.
func TestFailoverTimeIsThatOfTheAgent(t *testing.T) {
	agent := &fakeAgent{status: http.StatusOK, answer: successor, states: []string{vacant, successor}, journal: `{
		"group":"ledger","agent":"ledger-2","members":[{"name":"ledger-2"},{"name":"ledger-1"}],"steps":[
		{"at":"2026-11-20T12:00:00Z","input":"stopped","events":[{"kind":"resigns","peer":"ledger-0","term":90}]},
		{"at":"2026-11-20T12:00:01Z","input":"receive","events":[{"kind":"recognised","peer":"ledger-0","term":91}]},
		{"at":"2026-11-20T12:30:00Z","input":"stopped","events":[{"kind":"resigns","peer":"ledger-1","term":100}]},
		{"at":"2026-11-20T12:30:00.0098Z","input":"receive","events":[{"kind":"recognised","peer":"ledger-1","term":101}]}]}`}
	got, err := agent.stepDown(t, ledgerGroup(), "")
	if want := "ledger-1 leads in term 101; failover took 9.80 ms\n"; err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestStepDownEndsIfThePodCannotBeReached: a node that has disappeared refuses no connection.
func TestStepDownEndsIfThePodCannotBeReached(t *testing.T) {
	g := ledgerGroup()
	err := stepDown(t.Context(), io.Discard, g, "", func(ctx context.Context, _ types.NamespacedName) (*portforward.Port, error) {
		if _, limited := ctx.Deadline(); !limited {
			return nil, errors.New("this would wait for ever")
		}
		return nil, context.DeadlineExceeded
	})
	if want := "cannot forward a port to pod bank/ledger-2 within 20s"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
