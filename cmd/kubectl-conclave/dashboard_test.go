package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/dashboard"
	plugindashboard "github.com/conclave-dev/conclave/internal/plugin/dashboard"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/pluginenv"
)

// TestDashboardIsLive serves the groups of a real API server, and reads the events of the page.
func TestDashboardIsLive(t *testing.T) {
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	e.CreateGroup(t, "other")
	line := await(t, e.startCommand(t, "dashboard", "--port", "0"), "the address")
	address := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/`).FindString(line)
	if address == "" || !regexp.MustCompile(`/#key=[A-Z2-7]{26} until`).MatchString(line) {
		t.Fatalf("got %q, want the address with a key", line)
	}
	details := readEvents(t, address+"events/"+e.Namespace+"/ledger", "detail")
	awaitDetail := func(what string, wanted func(*dashboard.Detail) bool) {
		t.Helper()
		for {
			var d *dashboard.Detail
			data := await(t, details, what)
			must.Succeed(t, json.Unmarshal([]byte(data), &d))
			if wanted(d) {
				return
			}
		}
	}
	awaitDetail("ledger-2 leads", func(d *dashboard.Detail) bool {
		return d != nil && d.Coordinator == "ledger-2" && len(d.Processes) == 3
	})
	e.SetCoordinator(t, g, 1, 101)
	awaitDetail("ledger-1 leads",
		func(d *dashboard.Detail) bool { return d != nil && d.Coordinator == "ledger-1" && d.Term == 101 })
	must.Succeed(t, e.Delete(t.Context(), g))
	awaitDetail("the group is deleted", func(d *dashboard.Detail) bool { return d == nil })
	e.CreateGroup(t, "ledger")
	awaitDetail("the group is created again",
		func(d *dashboard.Detail) bool { return d != nil && d.Coordinator == "ledger-2" })

	summaries := readEvents(t, address+"events", "groups")
	if got := await(t, summaries, "all groups"); !strings.Contains(got, `"name":"ledger"`) ||
		!strings.Contains(got, `"name":"other"`) {
		t.Errorf("got groups %s, want ledger and other", got)
	}
}

// TestDashboardShowsThatTheOperatorIsDown: without the operator, each page looks as if nothing happened.
func TestDashboardShowsThatTheOperatorIsDown(t *testing.T) {
	e := newEnv(t)
	e.CreateOperator(t)
	lease := e.createSilentLease(t, e.Namespace)
	line := await(t, e.startCommand(t, "dashboard", "--port", "0"), "the address")
	address := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/`).FindString(line)
	connections := readEvents(t, address+"events", "connection")
	awaitConnection := func(what, part string) {
		t.Helper()
		got := ""
		for !strings.Contains(got, part) {
			got = await(t, connections, what)
		}
	}
	awaitConnection("the operator is down", `"silentSince":"20`)
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
	must.Succeed(t, e.Update(t.Context(), lease))
	awaitConnection("the operator runs", `{"state":"connected"}`)
}

// readEvents reads the data of the events of one kind.
func readEvents(t *testing.T, url, kind string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	must.Succeed(t, err)
	response, err := http.DefaultClient.Do(request) //nolint:bodyclose // The cleanup closes it.
	must.Succeed(t, err)
	found := make(chan string, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		event := ""
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && event == kind {
				found <- data
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = response.Body.Close() // The request was canceled.
	})
	return found
}

// TestDashboardStepsDown: whoever may forward ports to pods can make the coordinator hand over,
// and the command prints it.
func TestDashboardStepsDown(t *testing.T) {
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	e.createPod(t, "ledger-2", nil)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "ledger-2"}}
	agent := &pluginenv.FakeAgent{Status: http.StatusOK, Answer: pluginenv.Successor, Journal: pluginenv.Journal}
	server := httptest.NewServer(agent)
	defer server.Close()
	var out bytes.Buffer
	actions := plugindashboard.NewActions(&out, e, func(context.Context, types.NamespacedName) (*portforward.Port, error) {
		return portforward.At(server.URL, ""), nil
	})
	if may, err := actions.MayReachAgents(t.Context(), g); !may || err != nil {
		t.Errorf("an administrator: got %t, %v, want that this is permitted", may, err)
	}
	message, err := actions.StepDown(t.Context(), g, "ledger-1")
	if err != nil || !strings.HasPrefix(message, "ledger-1 leads in term 101; failover took ") ||
		agent.Successor != "ledger-1" {
		t.Errorf("got %q, %v, and a request for %q", message, err, agent.Successor)
	}
	if want := "step-down of " +
		e.Namespace + "/ledger: ledger-1 leads in term 101"; !strings.HasPrefix(out.String(), want) ||
		strings.Count(out.String(), "\n") != 1 {
		t.Errorf("got output %q, want one line that begins with %q", &out, want)
	}
	must.Succeed(t, e.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if by := v1.StepDownBy(pod.Annotations, "ledger", 100); by == "" {
		t.Errorf("got annotations %v, want the name of the user", pod.Annotations)
	}
	agent.Status, agent.Answer = http.StatusConflict, `{"error":"no member is ready to take over"}`
	if _, err := actions.StepDown(t.Context(), g, ""); err == nil {
		t.Error("got no error of an agent that refuses")
	}
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil ||
		pod.Annotations[v1.AnnotationStepDownBy] != "" {
		t.Errorf("after a refusal: got %v and annotations %v, want no name", err, pod.Annotations)
	}
	out.Reset()
	if _, err := actions.StepDown(t.Context(), g, "nobody"); err == nil ||
		!strings.Contains(out.String(), "error: --to must be a member") {
		t.Errorf("an unknown successor: got %v and output %q, want an error in both", err, &out)
	}

	need.Complete(t)
	config := apiServer.Config(t)
	config.Impersonate.UserName = "nobody@example.org"
	nobody, err := client.New(config, client.Options{Scheme: e.Scheme()})
	must.Succeed(t, err)
	if may, err := plugindashboard.NewActions(&out, nobody, nil).MayReachAgents(t.Context(), g); may || err != nil {
		t.Errorf("another user: got %t, %v, want that this is not permitted", may, err)
	}
}

func TestDashboardReportsProblemsAtTheStart(t *testing.T) {
	e := newEnv(t)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"not allowed": {
			[]string{"--as=nobody@example.org"},
			`cannot list resource "electiongroups" in API group "conclave.dev" in the namespace "bank"`,
		},
		"no server": {
			[]string{"--server", "http://127.0.0.1:1"},
			"cannot reach the API server: dial tcp 127.0.0.1:1: connect: connection refused",
		},
		"Grafana": {
			[]string{"--grafana", "grafana.example.org"},
			`--grafana must be the address of Grafana, such as https://grafana.example.org, got "grafana.example.org"`,
		},
		"the port": {[]string{"--port", "70000"}, "--port must be between 0 and 65535, got 70000"},
	} {
		got := e.runCommand(t, append([]string{"dashboard"}, test.args...)...)
		if got.status == 0 || !strings.Contains(got.stderr, test.want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: got exit status %d, %q, want one line with %q", name, got.status, got.stderr, test.want)
		}
	}
}

// TestDashboardReadsTheLastElection: the page gets what explain prints.
func TestDashboardReadsTheLastElection(t *testing.T) {
	actions := plugindashboard.NewActions(io.Discard, nil, pluginenv.ForwardToAgents(t))
	e, err := actions.LastElection(t.Context(), pluginenv.JournalGroup())
	if err != nil || e.Describe() != "ledger-0 was elected in term 7" || len(e.Missing) != 4 {
		t.Errorf("got %+v, %v, want the last election and four missing journals", e, err)
	}
}
