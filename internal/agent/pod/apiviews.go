package pod

import (
	"context"
	"fmt"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/group"
)

// Names are the groups that the agent takes part in.
func (p *runtime) Names() []string {
	if a := p.agent.Load(); a != nil {
		return a.Names()
	}
	return nil
}

// Find looks a group up.
func (p *runtime) Find(name string) (*group.Group, bool) {
	if a := p.agent.Load(); a != nil {
		return a.Find(name)
	}
	return nil, false
}

// local is the agent as its application sees it, also before it takes part.
func (p *runtime) localAPI() api.Groups { return localView{p} }

type localView struct{ *runtime }

func (l localView) Find(name string) (api.Group, bool) {
	if a := l.agent.Load(); a != nil {
		return a.Local().Find(name)
	}
	return nil, false
}

// Expects a group that the pod names: its operator will say who takes part.
func (p *runtime) Expects(name string) bool {
	_, err := p.groups.worker(name)
	return err == nil
}

// Problems are why the agent isn't ready: also, that it doesn't take part in a group
// that its pod names.
func (l localView) Problems() []string {
	var problems []string
	if a := l.agent.Load(); a != nil {
		problems = a.Problems()
	} else {
		problems = l.renewer.Problems()
	}
	for _, group := range l.groups.groupsWithoutDocument() {
		problems = append(problems, fmt.Sprintf("group %s: it isn't known who takes part", group))
	}
	return problems
}

// subordinate is the agent as its operator sees it.
type operatorView struct {
	*runtime

	agent *agent.Agent
}

func (s operatorView) Find(name string) (api.Group, bool) { return s.agent.Local().Find(name) }

func (s operatorView) Problems() []string { return s.runtime.localAPI().Problems() }

func (s operatorView) Reports() api.Reports { return s.reports.Reports() }

// ApplyDocument is for api.Subordinate. A document that is taken over stays so if whoever has
// sent it doesn't wait.
func (s operatorView) ApplyDocument(ctx context.Context, group string, document []byte) error {
	if _, err := s.groups.worker(group); err != nil {
		return err
	}
	done, err := s.groups.acceptDocument("the operator", group, document)
	if err != nil {
		return err
	}
	return await(ctx, done)
}

// LeaveGroup is for api.Subordinate.
func (s operatorView) LeaveGroup(ctx context.Context, group, uid string) error {
	d, err := s.groups.worker(group)
	if err != nil {
		return err
	}
	done, err := d.enqueue(&task{leaveUID: uid})
	if err != nil {
		return err
	}
	return await(ctx, done)
}

// SetEligible is for api.Subordinate.
func (s operatorView) SetEligible(ctx context.Context, name string, standing bool) error {
	g, ok := s.agent.Find(name)
	switch {
	case !ok:
		return fmt.Errorf("%w that it takes part in: %q", api.ErrUnknownGroup, name)
	case standing:
		return g.Readmit(ctx)
	}
	return g.Exclude(ctx)
}

func await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
