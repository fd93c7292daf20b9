package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
)

// Down ends the cluster and removes all that there is of it. That it isn't there is no error.
func (c Cluster) Down() error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	state, err := c.load()
	switch {
	case errors.Is(err, errNoCluster):
		c.Say("there is no cluster %s", c.Name) // Something of it may be left all the same.
	case err != nil:
		c.Say("%v", err) // It can be swept without.
	}
	if err := c.sweep(state); err != nil {
		return fmt.Errorf("take the cluster down: %w", err)
	}
	if err := os.Remove(c.lockFile()); err != nil {
		return fmt.Errorf("remove the cluster's lock: %w", err)
	}
	if state != nil {
		c.Say("cluster %s is down", c.Name)
	}
	return nil
}

// sweep removes whatever there is of the cluster: with its state, or by what bears its name. It goes on after an error,
// so that as little as possible is left.
func (c Cluster) sweep(state *State) error {
	var err error
	if state != nil {
		for _, member := range state.Machines {
			err = errors.Join(err, member.Init.Kill())
		}
	}
	hierarchies, noCgroups := machine.Hierarchies()
	if noCgroups == nil {
		err = errors.Join(err, machine.EmptyCgroup(hierarchies, c.cgroup()))
		err = errors.Join(err, machine.RemoveCgroup(hierarchies, c.cgroup()))
		machine.RemoveCgroupIfEmpty(hierarchies, cgroupParent)
	}
	err = errors.Join(err, c.fabric().Remove())
	if failed := os.RemoveAll(c.Directory); failed != nil {
		err = errors.Join(err, fmt.Errorf("remove the cluster's folder: %w", failed))
	}
	c.removeEmptyParents()
	return err
}

// removeEmptyParents removes the folders of all clusters with the last one.
func (c Cluster) removeEmptyParents() {
	for parent, levels := filepath.Dir(c.Directory), 2; levels > 0; parent, levels = filepath.Dir(parent), levels-1 {
		if os.Remove(parent) != nil { // Refused while it has anything in it.
			return
		}
	}
}
