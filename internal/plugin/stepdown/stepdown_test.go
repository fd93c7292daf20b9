package stepdown

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/pluginenv"
)

// nobody is a user whom the API server doesn't know.
type nobody struct{ client.Client }

func (nobody) Create(context.Context, client.Object, ...client.CreateOption) error {
	return errors.New("unauthorized")
}

func ledgerGroup() *v1.ElectionGroup {
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	g.Spec.Preemption = v1.Preemption{Policy: v1.PreemptWhenStable, StableMillis: new(int32(7000))}
	g.Status.Coordinator = &v1.Coordinator{Pod: "ledger-2", Priority: 30, Term: 100}
	for i := range int32(4) {
		g.Status.Processes = append(g.Status.Processes,
			v1.Process{Pod: fmt.Sprint("ledger-", 3-i), Priority: 10 * (3 - i), Status: v1.ProcessNormal})
	}
	g.Status.Processes = g.Status.Processes[1:] // ledger-2, -1 and -0, of which the last has priority 0
	g.Status.Processes[0].Priority, g.Status.Processes[1].Priority = 30, 20
	return g
}

// request sends the request to an agent without a forwarded port.
func request(t *testing.T, a *pluginenv.FakeAgent, g *v1.ElectionGroup, to string) (string, error) {
	t.Helper()
	agent := httptest.NewServer(a)
	defer agent.Close()
	defer agent.CloseClientConnections()
	var out bytes.Buffer
	err := Do(t.Context(), &out, nobody{}, g, to,
		func(_ context.Context, pod types.NamespacedName) (*portforward.Port, error) {
			expect.Equalf(t, pod.String(), "bank/ledger-2", "pod of the request")
			return portforward.At(agent.URL, ""), nil
		})
	return out.String(), err
}

func TestStepDownPrintsTheNewCoordinatorAndTheFailoverTime(t *testing.T) {
	const preemption = "ledger-2 has a higher priority (30): it is ineligible for 7 s, then takes " +
		"over again if it is healthy " +
		"(spec.preemption.policy: WhenStable)\n"
	for name, test := range map[string]struct {
		journal string
		policy  v1.PreemptionPolicy
		want    string
	}{
		"with preemption": {pluginenv.Journal, v1.PreemptWhenStable, "ledger-1 leads in term 101; failover took 9.8 ms\n" +
			preemption},
		"without preemption": {pluginenv.Journal, v1.PreemptNever, "ledger-1 leads in term 101; failover took 9.8 ms\n"},
		"without a journal":  {"", v1.PreemptNever, "ledger-1 leads in term 101\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := ledgerGroup()
			g.Spec.Preemption.Policy = test.policy
			agent := pluginenv.FakeAgent{Status: http.StatusOK, Answer: pluginenv.Successor, Journal: test.journal}
			got, err := request(t, &agent, g, "ledger-1")
			if err != nil || got != test.want {
				t.Errorf("got %q, %v, want %s", got, err, test.want)
			}
			expect.Equalf(t, agent.Successor, "ledger-1", "requested successor")
		})
	}
}

func TestStepDownFailureIsOneLine(t *testing.T) {
	cases := golden.Open(t, "testdata/failures.txt")
	agent := pluginenv.FakeAgent{Status: http.StatusConflict, Answer: `{"error":"no member is ready to take over"}`}
	for name, test := range map[string]struct {
		change func(*v1.ElectionGroup)
		to     string
	}{
		"refused":                    {},
		"no coordinator":             {change: func(g *v1.ElectionGroup) { g.Status.Coordinator = nil }},
		"to itself":                  {to: "ledger-2"},
		"to a pod that is no member": {to: "mail-0"},
		"to a member of priority 0":  {to: "ledger-0"},
		"single member": {
			change: func(g *v1.ElectionGroup) { g.Status.Processes = g.Status.Processes[:1] }, to: "ledger-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := ledgerGroup()
			if test.change != nil {
				test.change(g)
			}
			got, err := request(t, &agent, g, test.to)
			_, usage := errors.AsType[*command.UsageError](err)
			cases.Compare(t, name, fmt.Sprintf("%v\nusage error: %t", err, usage))
			expect.Equalf(t, got, "", "output")
		})
	}
}

// TestRefusalSaysWhyMemberIsNotReady: the coordinator's agent knows only that it isn't.
func TestRefusalSaysWhyMemberIsNotReady(t *testing.T) {
	const refused, notReady = "the agent in pod ledger-2 refused to step down: ", "ledger-1 is not ready to take over"
	for _, test := range []struct {
		reason                v1.ProcessReason
		message, answer, want string
	}{
		{
			v1.ProcessNotEligible, "Since noon, its node is cordoned", notReady,
			"ledger-1 is not eligible: since noon, its node is cordoned",
		},
		{v1.ProcessPodTerminating, "The pod is being deleted", notReady, refused + notReady +
			" (PodTerminating: The pod is being deleted)"},
		{"", "", notReady, refused + notReady},
		{v1.ProcessNotEligible, "", notReady, refused + notReady + " (NotEligible)"},
		{v1.ProcessNotEligible, "Since noon, its node is cordoned", "this process is stopping", refused +
			"this process is stopping"},
	} {
		g := ledgerGroup()
		g.Status.Processes[1].Reason, g.Status.Processes[1].Message = test.reason, test.message
		_, err := request(t,
			&pluginenv.FakeAgent{Status: http.StatusConflict, Answer: `{"error":"` + test.answer + `"}`}, g, "ledger-1")
		if _, conflict := errors.AsType[*ConflictError](err); err == nil || err.Error() != test.want || !conflict {
			t.Errorf("got %v, want the conflict %s", err, test.want)
		}
	}
}

func TestStepDownReportsTheErrorOfTheForwardedPort(t *testing.T) {
	agent := httptest.NewServer(http.NotFoundHandler())
	agent.Close()
	err := Do(t.Context(), &bytes.Buffer{}, nobody{}, ledgerGroup(), "",
		func(context.Context, types.NamespacedName) (*portforward.Port, error) {
			return portforward.At(agent.URL, "lost connection to pod"), nil
		})
	want := `^the agent in pod ledger-2 does not respond: .*connection refused \(lost connection to pod\)$`
	if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestStepDownEndsIfThePodCannotBeReached: a node that has disappeared refuses no connection.
func TestStepDownEndsIfThePodCannotBeReached(t *testing.T) {
	g := ledgerGroup()
	err := Do(t.Context(), io.Discard, nobody{}, g, "",
		func(ctx context.Context, _ types.NamespacedName) (*portforward.Port, error) {
			if _, limited := ctx.Deadline(); !limited {
				return nil, errors.New("this would wait for ever")
			}
			return nil, context.DeadlineExceeded
		})
	if want := "cannot forward a port to pod bank/ledger-2 within 20s"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
