package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// standIn is an agent that leads, until it is told to step down.
type standIn struct {
	// answer to step-down, and what its watchers are told then.
	status int
	answer string
	states []string
	asked  string
	told   chan struct{}
}

func (a *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/v1/groups/ledger/watch"):
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 1-1\ndata: {\"group\":\"ledger\",\"coordinator\":\"ledger-2\",\"term\":100}\n\n")
		w.(http.Flusher).Flush() //nolint:errcheck // httptest's can
		select {
		case <-a.told:
		case <-r.Context().Done():
		}
		for i, state := range a.states {
			fmt.Fprintf(w, "id: 1-%d\ndata: %s\n\n", i+2, state)
		}
		w.(http.Flusher).Flush() //nolint:errcheck // httptest's can
		<-r.Context().Done()
	case r.Method == http.MethodPost && r.URL.Path == "/v1/groups/ledger/step-down":
		var request struct{ To string }
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.asked = request.To
		close(a.told)
		w.WriteHeader(a.status)
		fmt.Fprint(w, a.answer)
	default:
		http.NotFound(w, r)
	}
}

func ledger() *v1.ElectionGroup {
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

// ask has the stand-in's group step down, through no tunnel.
func (a *standIn) ask(t *testing.T, g *v1.ElectionGroup, to string) (string, error) {
	t.Helper()
	a.told = make(chan struct{})
	agent := httptest.NewServer(a)
	defer agent.Close()
	defer agent.CloseClientConnections()
	var out bytes.Buffer
	err := stepDown(t.Context(), &out, g, to, func(_ context.Context, pod types.NamespacedName) (*tunnel, error) {
		if pod.String() != "bank/ledger-2" {
			t.Errorf("the agent of %s is asked, want the coordinator's", pod)
		}
		return &tunnel{address: agent.URL, end: func() {}, failure: &failure{}}, nil
	})
	return out.String(), err
}

const (
	vacant    = `{"group":"ledger","coordinator":"","term":100}`
	successor = `{"group":"ledger","coordinator":"ledger-1","priority":20,"term":101}`
)

func TestStepDownTellsWhoLeadsAndForHowLongNobodyDid(t *testing.T) {
	const comesBack = "ledger-2 has a higher priority (30): it stays away for 7 s, and takes over again when it is well " +
		"(spec.preemption.policy: WhenStable)\n"
	for name, test := range map[string]struct {
		states []string
		change func(*v1.ElectionGroup)
		want   string
	}{
		"with a gap": {
			states: []string{vacant, successor},
			want:   `^ledger-1 leads ledger in term 101, after ledger-2; nobody led for [0-9.]+(ns|µs|ms|s), as its agent told it\n` + regexp.QuoteMeta(comesBack) + `$`,
		},
		"without one": {
			states: []string{successor},
			want:   `^ledger-1 leads ledger in term 101, after ledger-2; its agent saw no gap\n` + regexp.QuoteMeta(comesBack) + `$`,
		},
		"for good": {
			states: []string{successor},
			change: func(g *v1.ElectionGroup) { g.Spec.Preemption.Policy = v1.PreemptNever },
			want:   `^ledger-1 leads ledger in term 101, after ledger-2; its agent saw no gap\n$`,
		},
		"the gap isn't known": {
			want: `^ledger-1 leads ledger in term 101, after ledger-2\n` + regexp.QuoteMeta(comesBack) + `$`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := ledger()
			if test.change != nil {
				test.change(g)
			}
			agent := standIn{status: http.StatusOK, answer: successor, states: test.states}
			got, err := agent.ask(t, g, "ledger-1")
			if err != nil || !regexp.MustCompile(test.want).MatchString(got) {
				t.Errorf("step-down says %q, %v, want %s", got, err, test.want)
			}
			if agent.asked != "ledger-1" {
				t.Errorf("the agent was asked to hand over to %q", agent.asked)
			}
		})
	}
}

func TestStepDownSaysInOneLineWhyNot(t *testing.T) {
	agent := standIn{status: http.StatusConflict, answer: `{"error":"nobody is ready to take over"}`}
	for name, test := range map[string]struct {
		change func(*v1.ElectionGroup)
		to     string
		want   string
		status int
	}{
		"refused": {
			want: "the agent in pod ledger-2 refused: nobody is ready to take over", status: 1,
		},
		"nobody leads": {
			change: func(g *v1.ElectionGroup) { g.Status.Coordinator = nil },
			want:   "nobody leads ledger, so nobody can step down: kubectl conclave explain ledger -n bank tells why", status: 1,
		},
		"to itself": {to: "ledger-2", want: "--to: ledger-2 leads already; name another pod, or leave it out", status: 2},
		"to a stranger": {
			to:   "mail-0",
			want: `--to must name a member of ledger with a priority above 0, such as ledger-1: not "mail-0"`, status: 2,
		},
		"to one that never stands": {
			to:   "ledger-0",
			want: `--to must name a member of ledger with a priority above 0, such as ledger-1: not "ledger-0"`, status: 2,
		},
		"alone": {
			change: func(g *v1.ElectionGroup) { g.Status.Processes = g.Status.Processes[:1] }, to: "ledger-1",
			want: "--to: ledger has no other member with a priority above 0", status: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := ledger()
			if test.change != nil {
				test.change(g)
			}
			got, err := agent.ask(t, g, test.to)
			if err == nil || err.Error() != test.want || exitStatus(err) != test.status || got != "" {
				t.Errorf("step-down says %q, %v (status %d), want %s (status %d)", got, err, exitStatus(err), test.want, test.status)
			}
		})
	}
}

func TestStepDownOfAnAgentThatIsGoneSaysWhatTheTunnelSaid(t *testing.T) {
	agent := httptest.NewServer(http.NotFoundHandler())
	agent.Close()
	f := &failure{}
	f.note("lost connection to pod")
	err := stepDown(t.Context(), &bytes.Buffer{}, ledger(), "", func(context.Context, types.NamespacedName) (*tunnel, error) {
		return &tunnel{address: agent.URL, end: func() {}, failure: f}, nil
	})
	want := `^the agent in pod ledger-2 doesn't answer: .*connection refused \(lost connection to pod\)$`
	if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Errorf("step-down says %v, want %s", err, want)
	}
}
