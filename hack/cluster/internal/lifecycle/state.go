// Package lifecycle starts, changes and removes clusters. The state of a cluster is in one folder. Everything that the
// package starts can also be found without that folder, by the name of the cluster.
package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/conclave-dev/conclave/hack/cluster/internal/binaries"
	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/network"
	"github.com/conclave-dev/conclave/hack/cluster/internal/program"
	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
)

// cgroupParent is the parent of the cgroups of all clusters.
const cgroupParent = "conclave"

// Cluster is one cluster. It may be running or not, or not exist.
type Cluster struct {
	Name      string
	Directory string // The folder with all its files, except its lock.
	Cache     binaries.Cache
	Printf    func(format string, values ...any) // Prints a line of progress.
}

// State is the state of a cluster. Commands save and load it.
type State struct {
	BootID   string         `json:"bootID"`
	Port     int            `json:"port"` // The port of the API server on the host's loopback.
	Kernel   program.Kernel `json:"kernel"`
	CAs      program.CAs    `json:"cas"`
	Machines []Member       `json:"machines"`
}

// Member is a machine of the cluster and its init process. The process is zero if the machine was killed.
type Member struct {
	Machine topology.Machine `json:"machine"`
	Init    machine.Process  `json:"init"`
	// Ready means that the machine became ready after its start. If it is false, the command that started the machine was
	// interrupted.
	Ready bool `json:"ready"`
}

// Open returns the cluster with a name. Its folder is the same for all users who become root, so that one command can't start a second
// cluster of that name beside the first.
func Open(name string, cache binaries.Cache, printf func(format string, values ...any)) Cluster {
	return Cluster{Name: name, Directory: filepath.Join(parentDirectory, name), Cache: cache, Printf: printf}
}

// parentDirectory has the folders of all clusters.
const parentDirectory = "/var/lib/conclave-cluster"

func (c Cluster) stateFile() string { return filepath.Join(c.Directory, "state.json") }

// Kubeconfig returns the path of the cluster's kubeconfig.
func (c Cluster) Kubeconfig() string { return filepath.Join(c.Directory, "kubeconfig") }

func (c Cluster) machineDirectory(of topology.Machine) string {
	return filepath.Join(c.Directory, "machines", of.Name)
}

func (c Cluster) cgroup() string { return filepath.Join(cgroupParent, c.Name) }

func (c Cluster) machineCgroup(of topology.Machine) string { return filepath.Join(c.cgroup(), of.Name) }

func (c Cluster) network() network.Network { return network.Network{Cluster: c.Name} }

// errNoCluster is returned if no cluster has the name.
var errNoCluster = errors.New("no such cluster")

func (c Cluster) load() (*State, error) {
	content, err := os.ReadFile(c.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; create it with: go run ./hack/cluster up --name %s", errNoCluster, c.Name, c.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the state of the cluster: %w", err)
	}
	var state State
	if err := json.Unmarshal(content, &state); err != nil {
		return nil, fmt.Errorf("cannot parse the state in %s: %w; run down and then up", c.stateFile(), err)
	}
	return &state, nil
}

// save replaces the state atomically: a command that is interrupted leaves the old or the new state.
func (c Cluster) save(state *State) error {
	content, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the state of the cluster: %w", err)
	}
	if err := replaceFile(c.stateFile(), content); err != nil {
		return fmt.Errorf("cannot save the state of the cluster: %w", err)
	}
	return nil
}

func replaceFile(path string, content []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// member returns the machine with this name. Its error lists the names of all machines.
func (s *State) member(name string) (*Member, error) {
	names := make([]string, 0, len(s.Machines))
	for i := range s.Machines {
		if s.Machines[i].Machine.Name == name {
			return &s.Machines[i], nil
		}
		names = append(names, s.Machines[i].Machine.Name)
	}
	return nil, fmt.Errorf("the machine must be one of %q, got %q", names, name)
}

// ensure returns the member for a machine. It adds the member if necessary.
func (s *State) ensure(of topology.Machine) *Member {
	at := slices.IndexFunc(s.Machines, func(m Member) bool { return m.Machine == of })
	if at < 0 {
		s.Machines = append(s.Machines, Member{Machine: of})
		at = len(s.Machines) - 1
	}
	return &s.Machines[at]
}

// withMachines returns these machines, and those of the cluster that aren't among them.
func (s *State) withMachines(machines []topology.Machine) []topology.Machine {
	for _, member := range s.Machines {
		if !slices.Contains(machines, member.Machine) {
			machines = append(machines, member.Machine)
		}
	}
	return machines
}

// switchedOff reports whether the computer was switched off after the cluster was created. Then the network of the machines is
// gone, and what they haven't synced to the disk.
func (s *State) switchedOff() (bool, error) {
	now, err := machine.BootID()
	return s.BootID != now && !s.alive(), err
}

// alive reports whether any machine of the cluster is running.
func (s *State) alive() bool {
	return slices.ContainsFunc(s.Machines, func(m Member) bool { return m.Init.Alive() })
}

// lock prevents concurrent changes of one cluster. The lock file isn't in the cluster's folder, because down removes that
// folder.
func (c Cluster) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(c.Cache.Directory, 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the cache folder: %w", err)
	}
	return binaries.Lock(ctx, c.lockFile(), func() { c.Printf("waiting for another command that changes cluster %s", c.Name) })
}

func (c Cluster) lockFile() string {
	return filepath.Join(c.Cache.Directory, "cluster-"+c.Name+".lock")
}

// Exists returns nil if the cluster exists, even if it isn't running.
func (c Cluster) Exists() error {
	_, err := c.load()
	return err
}
