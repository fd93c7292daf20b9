package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

// errEnding: nothing is taken over any more.
var errEnding = errors.New("the agent is about to end")

// ApplyGroup takes part in one group, or goes over to what is new in it, whatever
// becomes of others meanwhile. A group of the same name with another UID must have
// been left before, and the settings must keep promises, see config. keep is called when nothing speaks against it, and before it
// counts.
//
// Of the same group, one at a time.
func (a *Agent) ApplyGroup(ctx context.Context, next config.Group, keep func() error) error {
	a.reloading.RLock()
	defer a.reloading.RUnlock()
	if a.closed {
		return errEnding
	}
	before, known := a.running(next.Name)
	var list *config.List
	if known {
		list = &before.List
	}
	if err := a.choose("", &next, list); err != nil {
		return err
	}
	if err := keep(); err != nil {
		return err
	}
	a.replace(next.Name, &next)
	a.connect() // The members must be reachable before the first message to them.
	var err error
	switch {
	case !known:
		a.parts.Log.Info("joins a group", "group", next.Name, "version", next.List.Version)
		err = a.join(ctx, next, false)
	case len(next.ChangedSettings(before)) > 0:
		err = a.joinAgain(ctx, before, next)
	default:
		err = a.goOver(ctx, before, next)
	}
	if err != nil {
		a.drop(ctx, next.Name)
		a.replace(next.Name, nil)
		a.connect()
	}
	return err
}

// joinAgain is how a group gets other settings: a Machine keeps those that it was
// made with.
func (a *Agent) joinAgain(ctx context.Context, before, next config.Group) error {
	a.parts.Log.Info("joins a group again, for its settings have changed", "group", next.Name, "settings", next.ChangedSettings(before))
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
	a.reloading.RLock()
	defer a.reloading.RUnlock()
	if a.closed {
		return errEnding
	}
	a.drop(ctx, name)
	a.replace(name, nil)
	a.connect()
	return nil
}

func (a *Agent) drop(ctx context.Context, name string) {
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
	a.parts.Log.Info("left a group", "group", name)
}

// running is a group as it runs.
func (a *Agent) running(name string) (config.Group, bool) {
	for _, g := range a.Config().Groups {
		if g.Name == name {
			return g, true
		}
	}
	return config.Group{}, false
}

// replace puts a group into the config, or takes it out if next is nil.
func (a *Agent) replace(name string, next *config.Group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := *a.config
	c.Groups = slices.DeleteFunc(slices.Clone(c.Groups), func(g config.Group) bool { return g.Name == name })
	if next != nil {
		c.Groups = append(c.Groups, *next)
	}
	a.config = &c
}
