package agents

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestIneligibleMemberSaysWhy: everywhere where somebody may look.
func TestIneligibleMemberSaysWhy(t *testing.T) {
	t.Parallel()
	cluster := agentcluster.Start(t, agentcluster.Options{Agents: 3, Group: agentcluster.Group{Application: &agentcluster.Application{Session: "Required"}}})
	must.Succeed(t, cluster.Start())
	const why = "no session is open"
	err := agentcluster.Await(testContext(t), func(ctx context.Context) error {
		status, statusErr := cluster.Status(ctx, "a")
		_, ready, readyErr := cluster.Ready(ctx, "a")
		metrics, metricsErr := cluster.Metrics(ctx, "a")
		log, logErr := cluster.Agent("a").ReadLog()
		if err := errors.Join(statusErr, readyErr, metricsErr, logErr); err != nil {
			return err
		}
		row := ""
		for i := range status.Processes {
			row += status.Processes[i].Ineligible
		}
		for place, text := range map[string]string{
			"status row": row, "log": string(log), "/readyz?verbose": ready,
			"metrics": strings.ReplaceAll(metrics, `conclave_ineligible{group="ledger",reason="session"} 1`, why),
		} {
			if !strings.Contains(text, why) {
				return fmt.Errorf("%s: got %q, want %q", place, text, why)
			}
		}
		return nil
	})
	must.Succeed(t, err)
}
