package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// newActions returns what the page may do with the user's permissions. Each step-down is
// printed.
func newActions(out io.Writer, c client.Client, forward portForwarder) *dashboard.Actions {
	return &dashboard.Actions{
		Key: dashboard.NewKey(),
		MayReachAgents: func(ctx context.Context, g *v1.ElectionGroup) (bool, error) {
			return mayForwardPorts(ctx, c, g.Namespace)
		},
		StepDown: func(ctx context.Context, g *v1.ElectionGroup, to string) (string, error) {
			var text bytes.Buffer
			if err := stepDown(ctx, &text, g, to, forward); err != nil {
				fmt.Fprintf(out, "step-down of %s/%s: error: %v\n", g.Namespace, g.Name, err)
				return "", err
			}
			message := strings.TrimSpace(text.String())
			fmt.Fprintf(out, "step-down of %s/%s: %s\n", g.Namespace, g.Name, strings.ReplaceAll(message, "\n", ". "))
			return message, nil
		},
		LastElection: func(ctx context.Context, g *v1.ElectionGroup) (*transcript.Election, error) {
			return readElection(ctx, g, 0, forward)
		},
	}
}
