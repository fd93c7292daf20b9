package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
)

// Down stops the cluster and removes everything of it. It returns nil if there is no such cluster.
func (c Cluster) Down(ctx context.Context) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	state, err := c.load()
	switch {
	case errors.Is(err, errNoCluster): // Parts of it may exist nevertheless.
		c.Printf("there is no cluster %s", c.Name)
	case err != nil:
		c.Printf("%v", err) // Removal works without the state.
	}
	if err := c.removeAll(state); err != nil {
		return fmt.Errorf("cannot remove the cluster: %w", err)
	}
	if err := os.Remove(c.lockFile()); err != nil {
		return fmt.Errorf("cannot remove the cluster's lock: %w", err)
	}
	if state != nil {
		c.Printf("cluster %s is removed", c.Name)
	}
	return nil
}

// removeAll removes everything of the cluster. It finds processes with the state, if there is one, and the rest by the
// name of the cluster. It continues after errors.
func (c Cluster) removeAll(state *State) error {
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
	err = errors.Join(err, c.network().Remove())
	if failed := os.RemoveAll(c.Directory); failed != nil {
		err = errors.Join(err, fmt.Errorf("cannot remove the cluster's folder: %w", failed))
	}
	_ = os.Remove(parentDirectory) // Fails as long as there is another cluster.
	return err
}
