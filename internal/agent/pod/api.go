package pod

import (
	"context"
	"fmt"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
)

// Names returns the groups that the agent takes part in. With Find, it implements metrics.Groups.
func (r *runtime) Names() []string { return r.agent.Load().Names() }

func (r *runtime) Find(name string) (*group.Group, bool) { return r.agent.Load().Find(name) }

// localAPI implements api.Groups for the application. It also responds before the agent has a certificate.
type localAPI struct{ *runtime }

func (l localAPI) Find(name string) (api.Group, bool) { return l.agent.Load().Local().Find(name) }

// Expects reports whether the pod may be a member of a group whose document the agent
// hasn't received: it names the group, or groups select it, also those that are created later.
func (r *runtime) Expects(name string) bool {
	if r.settings.GroupsFile != "" {
		return config.CheckGroupName(name) == nil
	}
	_, err := r.groups.worker(name)
	return err == nil
}

// Problems implements api.Groups. One reason why the agent isn't ready is a group that the pod names
// and whose document the agent hasn't received.
func (l localAPI) Problems() (own, others []string) {
	if a := l.agent.Load(); a != nil {
		own, others = a.Problems()
	} else {
		own, others = l.renewer.Problems()
	}
	for _, group := range l.groups.groupsWithoutDocument() {
		own = append(own, fmt.Sprintf("group %s: waiting for its document", group))
	}
	return own, others
}

// operatorAPI implements api.OperatorAgent.
type operatorAPI struct {
	localAPI
	*groupManager
	*reportHub
}

func (o operatorAPI) SetEligible(ctx context.Context, name string, eligible bool) error {
	g, ok := o.runtime.Find(name)
	switch {
	case !ok:
		return fmt.Errorf("%w: the agent has not joined %q", api.ErrUnknownGroup, name)
	case eligible:
		return g.Readmit(ctx)
	}
	return g.Exclude(ctx)
}
