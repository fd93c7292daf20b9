package explain

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// application returns the part about the application of the coordinator. It is "" if there is no coordinator, or if its
// agent can't be reached, which the part about the election says.
func (o *options) application(ctx context.Context, g *v1.ElectionGroup) string {
	forward, err := o.forwarder(ctx, g)
	if g.Status.Coordinator == nil || err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, journalsTimeout)
	defer cancel()
	lines := sessions(ctx, g, forward)
	if lines == nil {
		return ""
	}
	return "\nApplication\n  " + strings.Join(lines, "\n  ") + "\n"
}

// sessions describes the sessions beside the coordinator's agent. Only the agent knows them: a status that follows each
// renewal would cost the API server writes all the time.
func sessions(ctx context.Context, g *v1.ElectionGroup, forward clusteraccess.PortForwarder) []string {
	pod := g.Status.Coordinator.Pod
	var found struct{ Sessions []control.SessionStatus }
	if err := clusteraccess.ReadStatus(ctx, forward, types.NamespacedName{Namespace: g.Namespace, Name: pod},
		g.Name, &found); err != nil {
		return nil
	}
	if len(found.Sessions) == 0 {
		return []string{fmt.Sprintf("%s has no open session: the agent doesn't know whether its application runs.", pod)}
	}
	var lines []string
	for i := range found.Sessions {
		lines = append(lines, fmt.Sprintf("A session of %s %s.", pod, &found.Sessions[i]))
	}
	return lines
}
