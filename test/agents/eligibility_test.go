package agents

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// TestIneligibleMemberSaysWhy: everywhere where somebody may look.
func TestIneligibleMemberSaysWhy(t *testing.T) {
	t.Parallel()
	group := newGroup(t, agentcluster.Options{Agents: 3, Group: agentcluster.Group{Application: agentcluster.Application{Session: "Required"}}})
	group.start()
	const why = "no session is open"
	group.await(func(ctx context.Context) error {
		status, statusErr := group.Status(ctx, "a")
		_, ready, readyErr := group.Ready(ctx, "a")
		metrics, metricsErr := group.Metrics(ctx, "a")
		log, logErr := group.Agent("a").ReadLog()
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
}
