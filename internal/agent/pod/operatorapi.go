package pod

import (
	"context"
	"fmt"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/api"
)

// operatorAPI implements api.OperatorAgent.
type operatorAPI struct {
	*runtime

	agent *agent.Agent
}

// Find implements api.Groups.
func (o operatorAPI) Find(name string) (api.Group, bool) { return o.agent.Local().Find(name) }

// Problems implements api.Groups.
func (o operatorAPI) Problems() (own, others []string) { return localAPI{o.runtime}.Problems() }

// Reports implements api.OperatorAgent.
func (o operatorAPI) Reports() api.Reports { return o.reports.Reports() }

// ApplyDocument implements api.OperatorAgent. The agent applies the document even if the
// operator stops waiting.
func (o operatorAPI) ApplyDocument(ctx context.Context, group string, document []byte) error {
	if _, err := o.groups.worker(group); err != nil {
		return err
	}
	done, err := o.groups.acceptDocument(group, document)
	if err != nil {
		return err
	}
	return await(ctx, done)
}

// LeaveGroup implements api.OperatorAgent.
func (o operatorAPI) LeaveGroup(ctx context.Context, group, uid string, revision int64) error {
	w, err := o.groups.worker(group)
	if err != nil {
		return err
	}
	if err := checkRevision(revision); err != nil {
		return fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
	}
	done, err := w.enqueue(&task{leaveUID: uid, leaveRevision: revision})
	if err != nil {
		return err
	}
	return await(ctx, done)
}

// SetEligible implements api.OperatorAgent.
func (o operatorAPI) SetEligible(ctx context.Context, name string, eligible bool) error {
	g, ok := o.agent.Find(name)
	switch {
	case !ok:
		return fmt.Errorf("%w: the agent has not joined %q", api.ErrUnknownGroup, name)
	case eligible:
		return g.Readmit(ctx)
	}
	return g.Exclude(ctx)
}

// await returns the result of a task, or the error of ctx.
func await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
