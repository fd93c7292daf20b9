package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

// errClosed: nothing is taken over any more.
var errClosed = errors.New("the agent is about to end")

// ApplyGroup takes part in one group, or goes over to what is new in it, whatever
// becomes of others meanwhile. A group of the same name with another UID must have
// been left before, and the settings must keep promises, see config. keep is called when nothing speaks against it, and before it
// counts.
//
// Of the same group, one at a time.
func (a *Agent) ApplyGroup(ctx context.Context, next config.Group, keep func() error) error {
	a.applying.RLock()
	defer a.applying.RUnlock()
	if a.closed {
		return errClosed
	}
	before, known := a.groupConfig(next.Name)
	var list *config.List
	if known {
		list = &before.List
	}
	if err := a.chooseList("", &next, list); err != nil {
		return err
	}
	if err := keep(); err != nil {
		return err
	}
	a.setGroupConfig(next.Name, &next)
	a.connect() // The members must be reachable before the first message to them.
	var err error
	switch {
	case !known:
		a.options.Log.Info("joins a group", "group", next.Name, "version", next.List.Version)
		err = a.join(ctx, next, false)
	case len(next.ChangedSettings(before)) > 0:
		err = a.rejoin(ctx, before, next)
	default:
		err = a.adoptList(ctx, before, next)
	}
	if err != nil {
		a.leaveGroup(ctx, next.Name)
		a.setGroupConfig(next.Name, nil)
		a.connect()
	}
	return err
}

// rejoin is how a group gets other settings: a Machine keeps those that it was
// made with.
func (a *Agent) rejoin(ctx context.Context, before, next config.Group) error {
	a.options.Log.Info("joins a group again, for its settings have changed", "group", next.Name, "settings", next.ChangedSettings(before))
	a.mu.RLock()
	m := a.groups[next.Name]
	a.mu.RUnlock()
	ctx = context.WithoutCancel(ctx) // It is brought to its end, whether or not somebody waits.
	withheld, err := m.Excluded(ctx)
	if err != nil {
		return err
	}
	m.leave(ctx) // While letters and answers still find it.
	return a.join(ctx, next, withheld)
}

// LeaveGroup leaves a group, whose coordinator it hands over before.
func (a *Agent) LeaveGroup(ctx context.Context, name string) error {
	a.applying.RLock()
	defer a.applying.RUnlock()
	if a.closed {
		return errClosed
	}
	a.leaveGroup(ctx, name)
	a.setGroupConfig(name, nil)
	a.connect()
	return nil
}

func (a *Agent) leaveGroup(ctx context.Context, name string) {
	a.mu.RLock()
	left, ok := a.groups[name]
	a.mu.RUnlock()
	if !ok {
		return
	}
	left.leave(context.WithoutCancel(ctx)) // While letters and answers still find it.
	a.mu.Lock()
	delete(a.groups, name)
	a.mu.Unlock()
	a.options.Log.Info("left a group", "group", name)
}

// running is a group as it runs.
func (a *Agent) groupConfig(name string) (config.Group, bool) {
	for _, g := range a.Config().Groups {
		if g.Name == name {
			return g, true
		}
	}
	return config.Group{}, false
}

// replace puts a group into the config, or takes it out if next is nil.
func (a *Agent) setGroupConfig(name string, next *config.Group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := *a.config
	c.Groups = slices.DeleteFunc(slices.Clone(c.Groups), func(g config.Group) bool { return g.Name == name })
	if next != nil {
		c.Groups = append(c.Groups, *next)
	}
	a.config = &c
}
