package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/plugin/explain"
	"github.com/conclave-dev/conclave/internal/plugin/status"
	"github.com/conclave-dev/conclave/internal/plugin/stepdown"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// NewActions returns what the page may do with the user's permissions. Each step-down is printed.
func NewActions(out io.Writer, c client.Client, forward clusteraccess.PortForwarder) *dashboard.Actions {
	return &dashboard.Actions{
		Key: dashboard.NewKey(),
		MayReachAgents: func(ctx context.Context, g *v1.ElectionGroup) (bool, error) {
			return clusteraccess.MayForwardPorts(ctx, c, g.Namespace)
		},
		StepDown: func(ctx context.Context, g *v1.ElectionGroup, to string) (string, error) {
			var text bytes.Buffer
			if err := stepdown.Do(ctx, &text, c, g, to, forward); err != nil {
				fmt.Fprintf(out, "step-down of %s/%s: error: %v\n", g.Namespace, g.Name, err)
				return "", err
			}
			message := strings.TrimSpace(text.String())
			fmt.Fprintf(out, "step-down of %s/%s: %s\n", g.Namespace, g.Name, strings.ReplaceAll(message, "\n", ". "))
			return message, nil
		},
		LastElection: func(ctx context.Context, g *v1.ElectionGroup) (*transcript.Election, error) {
			found, err := explain.Elections(ctx, g, 0, 1, forward)
			if err != nil {
				return nil, err
			}
			return found[0], nil
		},
		Connections: func(ctx context.Context, g *v1.ElectionGroup) []describe.Connections {
			return status.Connections(ctx, g, forward)
		},
	}
}
