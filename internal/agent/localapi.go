package agent

import (
	"context"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/group"
)

// Local returns the groups of the agent for the local API.
func (a *Agent) Local() api.Groups { return localAPI{a} }

type localAPI struct{ *Agent }

func (l localAPI) Find(name string) (api.Group, bool) {
	g, ok := l.Agent.Find(name)
	return groupView{g}, ok
}

// Expects returns false: the settings of all groups in a file are known from the start.
func (localAPI) Expects(string) bool { return false }

// groupView implements api.Group: it returns interfaces where *group.Group returns
// pointers.
type groupView struct{ *group.Group }

func (v groupView) Watch(after string) api.Watcher { return v.Group.Watch(after) }

func (v groupView) OpenSession(ctx context.Context, renews bool) (api.Session, error) {
	s, err := v.Group.OpenSession(ctx, renews)
	if err != nil {
		return nil, err
	}
	return s, nil
}
