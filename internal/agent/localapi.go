package agent

import (
	"context"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/group"
)

// Local is the agent as its applications see it.
func (a *Agent) Local() api.Groups { return localAPI{a} }

type localAPI struct{ *Agent }

func (l localAPI) Find(name string) (api.Group, bool) {
	g, ok := l.Agent.Find(name)
	return groupView{g}, ok
}

// Awaits is false for all: a file says at once who takes part.
func (localAPI) Expects(string) bool { return false }

type groupView struct{ *group.Group }

func (d groupView) Watch(after string) api.Watcher { return d.Group.Watch(after) }

func (d groupView) OpenSession(ctx context.Context) (api.Session, error) {
	s, err := d.Group.OpenSession(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}
