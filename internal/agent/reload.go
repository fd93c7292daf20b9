package agent

import (
	"context"
	"errors"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

// Reload switches to a changed configuration file. It differs from ApplyGroup for each group in the following ways:
//
//   - It refuses the whole file if config.CheckReload finds an error. In particular, the
//     fixed settings of a running group cannot change, so Reload never joins a group again.
//   - The file itself is the durable copy of the settings. Only lists are stored besides.
//   - The agent leaves the groups that the file lacks.
//   - If a running group cannot be changed, it continues with its previous settings, and
//     Reload continues with the other groups. The returned error has all reasons.
func (a *Agent) Reload(ctx context.Context, next *config.Config) error {
	a.applying.Lock()
	defer a.applying.Unlock()
	if a.closed.Load() {
		return errClosed
	}
	if err := config.CheckReload(a.Config(), next); err != nil {
		return err
	}
	inFile := map[string]bool{}
	var failed []error
	for _, g := range next.Groups {
		inFile[g.Name] = true
		if err := a.reloadGroup(ctx, g); err != nil {
			failed = append(failed, next.InGroup(g.Name, err))
		}
	}
	for _, g := range a.Config().Groups {
		if !inFile[g.Name] {
			a.leaveGroup(ctx, g.Name)
		}
	}
	a.setFileConfig(next)
	a.connect()
	return errors.Join(failed...)
}

// reloadGroup applies the settings of a group. If this fails, it restores the configuration of the group.
func (a *Agent) reloadGroup(ctx context.Context, next config.Group) error {
	var before []config.Group
	if g, known := a.groupConfig(next.Name); known {
		before = append(before, g)
	}
	stored, err := a.prepare(next, nil)
	if err != nil {
		return err
	}
	if err = a.apply(ctx, stored); err != nil {
		a.setGroupConfig(next.Name, before...)
	}
	return err
}

// setFileConfig replaces the configuration in force by the file, with the settings of the groups in force.
func (a *Agent) setFileConfig(file *config.Config) {
	merged := *file
	merged.Groups = nil
	for _, g := range file.Groups {
		if running, ok := a.groupConfig(g.Name); ok {
			merged.Groups = append(merged.Groups, running)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.config = &merged
}
