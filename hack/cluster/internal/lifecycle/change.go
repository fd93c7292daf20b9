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

// open locks and loads an existing cluster for a command that changes it.
func (c Cluster) open(ctx context.Context) (*State, func(), error) {
	unlock, err := c.lock(ctx)
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

// Load loads the images of a tar file on every running node.
func (c Cluster) Load(ctx context.Context, tarball string) error {
	state, unlock, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(tarball); err != nil {
		return fmt.Errorf("cannot load an image: %w", err)
	}
	for _, member := range state.Machines {
		switch {
		case member.Machine.IsControlPlane():
		case !member.Init.Alive():
			err = errors.Join(err, fmt.Errorf("%s isn't running: start it and load the image again", member.Machine.Name))
		default:
			if failed := c.importImage(ctx, member, tarball); failed != nil {
				err = errors.Join(err, failed)
				continue
			}
			c.Printf("loaded %s on %s", filepath.Base(tarball), member.Machine.Name)
		}
	}
	return err
}

// Partition disconnects a machine from all others. The machine keeps running, and no process is notified.
func (c Cluster) Partition(ctx context.Context, name string) error {
	return c.setPlugged(ctx, name, "%s is partitioned", c.network().Unplug)
}

// Heal reconnects a machine.
func (c Cluster) Heal(ctx context.Context, name string) error {
	return c.setPlugged(ctx, name, "%s is connected", c.network().Plug)
}

func (c Cluster) setPlugged(ctx context.Context, name, message string, do func(topology.Machine) error) error {
	state, unlock, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	member, err := state.member(name)
	if err != nil {
		return err
	}
	if !member.Init.Alive() {
		return fmt.Errorf("%s isn't running: start it first", name)
	}
	if err := do(member.Machine); err != nil {
		return err
	}
	c.Printf(message, name)
	return nil
}

// Kill stops a machine as a power failure does: its peers receive no packets, not even a TCP reset.
func (c Cluster) Kill(ctx context.Context, name string) error {
	state, unlock, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	member, err := state.member(name)
	if err != nil {
		return err
	}
	if !member.Init.Alive() {
		c.Printf("%s isn't running", name)
		return nil
	}
	// Disconnect the machine first, so that the packets that the kernel sends when processes exit are dropped.
	if err := c.network().Unplug(member.Machine); err != nil {
		return err
	}
	if err := member.Init.Kill(); err != nil {
		return err
	}
	member.Init, member.Ready = machine.Process{}, false
	if err := c.save(state); err != nil {
		return err
	}
	c.Printf("%s is killed", name)
	return nil
}

// Start starts a machine that was killed and returns when it is ready. The machine keeps its files.
func (c Cluster) Start(ctx context.Context, name string) error {
	state, unlock, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	member, err := state.member(name)
	if err != nil {
		return err
	}
	if member.Init.Alive() && member.Ready {
		c.Printf("%s is already running", name)
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
	if state.ensure(started[0].Machine).Ready {
		c.Printf("%s is ready", name)
	}
	return nil
}

// Status returns a line about each machine.
func (c Cluster) Status() ([]string, error) {
	state, err := c.load()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, member := range state.Machines {
		condition := "stopped"
		switch {
		case !member.Init.Alive():
		case os.Geteuid() == 0 && !c.network().Plugged(member.Machine):
			condition = "partitioned"
		default:
			condition = fmt.Sprintf("running, init is process %d", member.Init.PID)
		}
		lines = append(lines, fmt.Sprintf("%-14s %-15s %s", member.Machine.Name, member.Machine.IP(), condition))
	}
	return lines, nil
}
