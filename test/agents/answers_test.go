package agents

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/plugin/check/rules"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// TestDelayedLinksAreMeasured: when all links become slow, the coordinator measures it, and check
// warns, long before a coordinator is lost.
func TestDelayedLinksAreMeasured(t *testing.T) {
	need.Complete(t)
	agentcluster.NeedPartitions(t)
	ctx := testContext(t)
	// The suspicion timeout is 4 s and tolerates 3 s.
	const heartbeat, lease, oneWay = 1000, 10_000, 400 * time.Millisecond
	agents := agentcluster.Start(t, agentcluster.Options{Agents: 3, TLS: true, Group: agentcluster.Group{
		Algorithm: "StatusTable", Timing: &agentcluster.Timing{HeartbeatMillis: heartbeat},
		Safety: &agentcluster.Safety{Mode: "Majority", LeaseMillis: lease},
	}})
	delay, stop, err := agents.InterceptToDelay()
	must.Succeed(t, err)
	t.Cleanup(func() { // Otherwise, it would intercept the connections of other tests.
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	must.Succeed(t, agents.Start())
	coordinate(ctx, t, agents, "c")
	delay(oneWay)
	var status group.Status
	err = agentcluster.Await(ctx, func(ctx context.Context) (err error) {
		if status, err = agents.Status(ctx, "c"); err != nil {
			return err
		}
		for _, p := range status.Processes {
			if p.Name != "c" && (p.Answers == nil || p.Answers.LongestMicros < 2*oneWay.Microseconds()) {
				return fmt.Errorf("%s: got answers %+v, want one after %s", p.Name, p.Answers, 2*oneWay)
			}
		}
		return nil
	})
	must.Succeed(t, err)
	metrics, err := agents.Metrics(ctx, "c")
	if err != nil || !strings.Contains(metrics, `conclave_answer_seconds_count{group="ledger"} `) ||
		strings.Contains(metrics, `conclave_answer_seconds_count{group="ledger"} 0`) {
		t.Errorf("got metrics %s, %v, want answers", metrics, err)
	}
	// With the default timing, the same delays would be too long.
	status.Timing.HeartbeatMillis, status.Timing.PatienceMillis = 100, 400
	g := v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	g.Status.Coordinator = &v1.Coordinator{Pod: "c"}
	m := rules.Measurement{Timing: status.Timing, Size: len(status.Processes)}
	for _, p := range status.Processes {
		if p.Answers != nil {
			m.Members = append(m.Members, rules.MemberAnswers{Pod: p.Name, Answers: *p.Answers})
		}
	}
	findings := rules.Run(&rules.Facts{
		Groups: []v1.ElectionGroup{g}, Now: time.Now(),
		Measurements: map[types.NamespacedName]rules.Measurement{{Namespace: "bank", Name: "ledger"}: m},
	})
	warned := false
	for _, f := range findings {
		warned = warned || f.Level == rules.Warning && strings.HasPrefix(f.Message, "The suspicion timeout is too short for the answers of ")
	}
	if !warned {
		t.Errorf("got %+v, want a warning", findings)
	}
}
