package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
)

// open locks a cluster that exists, for a command that changes it.
func (c Cluster) open() (*State, func(), error) {
	unlock, err := c.lock()
	if err != nil {
		return nil, nil, err
	}
	state, err := c.load()
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return state, unlock, nil
}

// Load puts the images of a tar file onto every node that runs.
func (c Cluster) Load(ctx context.Context, tarball string) error {
	state, unlock, err := c.open()
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(tarball); err != nil {
		return fmt.Errorf("load an image: %w", err)
	}
	for _, member := range state.Machines {
		switch {
		case member.Machine.IsControlPlane():
		case !member.Init.Alive():
			err = errors.Join(err, fmt.Errorf("%s doesn't run: start it, and load again", member.Machine.Name))
		default:
			if failed := c.importImage(ctx, member, tarball); failed != nil {
				err = errors.Join(err, failed)
				continue
			}
			c.Say("loaded %s on %s", filepath.Base(tarball), member.Machine.Name)
		}
	}
	return err
}

// Partition cuts a machine off from all others. It goes on running, and nobody is told.
func (c Cluster) Partition(name string) error {
	return c.plugging(name, "%s is cut off", c.fabric().Unplug)
}

// Heal ends a partition.
func (c Cluster) Heal(name string) error {
	return c.plugging(name, "%s is connected", c.fabric().Plug)
}

func (c Cluster) plugging(name, said string, do func(topology.Machine) error) error {
	state, unlock, err := c.open()
	if err != nil {
		return err
	}
	defer unlock()
	member, err := state.member(name)
	if err != nil {
		return err
	}
	if !member.Init.Alive() {
		return fmt.Errorf("%s doesn't run: start it first", name)
	}
	if err := do(member.Machine); err != nil {
		return err
	}
	c.Say(said, name)
	return nil
}

// Kill takes a machine away as a power cut does: its peers get no reset and no goodbye.
func (c Cluster) Kill(name string) error {
	state, unlock, err := c.open()
	if err != nil {
		return err
	}
	defer unlock()
	member, err := state.member(name)
	if err != nil {
		return err
	}
	if !member.Init.Alive() {
		c.Say("%s doesn't run", name)
		return nil
	}
	// The cable first: what the kernel sends for dying processes must not get out.
	if err := c.fabric().Unplug(member.Machine); err != nil {
		return err
	}
	if err := member.Init.Kill(); err != nil {
		return err
	}
	member.Init, member.Settled = machine.Process{}, false
	if err := c.save(state); err != nil {
		return err
	}
	c.Say("%s is dead", name)
	return nil
}

// Start brings back a machine that was killed, with what is on its disk, and returns when it does its work again.
func (c Cluster) Start(ctx context.Context, name string) error {
	state, unlock, err := c.open()
	if err != nil {
		return err
	}
	defer unlock()
	member, err := state.member(name)
	if err != nil {
		return err
	}
	if member.Init.Alive() && member.Settled {
		c.Say("%s runs already", name)
		return nil
	}
	programs, err := c.programs(ctx, len(state.Machines)-1)
	if err != nil {
		return err
	}
	started, err := c.bootMissing(state, []topology.Machine{member.Machine}, programs)
	if err != nil {
		return err
	}
	if err := c.await(ctx, state, started); err != nil {
		return err
	}
	if state.ensure(started[0].Machine).Settled {
		c.Say("%s is back", name)
	}
	return nil
}

// Status tells of each machine whether it runs, in a line.
func (c Cluster) Status() ([]string, error) {
	state, err := c.load()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, member := range state.Machines {
		condition := "dead"
		switch {
		case !member.Init.Alive():
		case os.Geteuid() == 0 && !c.fabric().Plugged(member.Machine):
			condition = "partitioned"
		default:
			condition = fmt.Sprintf("running, init is process %d", member.Init.PID)
		}
		lines = append(lines, fmt.Sprintf("%-14s %-15s %s", member.Machine.Name, member.Machine.IP(), condition))
	}
	return lines, nil
}
