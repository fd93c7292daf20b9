// Package lifecycle brings clusters up, changes them and takes them down. Everything that it must remember of a cluster is
// in one folder; everything that it starts can be found without that folder too, by the cluster's name.
package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/conclave-dev/conclave/hack/cluster/internal/binaries"
	"github.com/conclave-dev/conclave/hack/cluster/internal/fabric"
	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/program"
	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
)

// cgroupParent holds the cgroups of all clusters.
const cgroupParent = "conclave"

// Cluster is one cluster, whether it runs or not.
type Cluster struct {
	Name      string
	Directory string // All that is on disk of it.
	Cache     binaries.Cache
	Say       func(format string, values ...any)
}

// State is what outlives the command that made it.
type State struct {
	Port        int                 `json:"port"` // Of the API server, on the host's loopback.
	Kernel      program.Kernel      `json:"kernel"`
	Authorities program.Authorities `json:"authorities"`
	Machines    []Member            `json:"machines"`
}

// Member is a machine of the cluster, and the process that it lives by: none if it was killed.
type Member struct {
	Machine topology.Machine `json:"machine"`
	Init    machine.Process  `json:"init"`
	// Settled says that it came to do its work after its start. If it isn't, the command that started it was interrupted.
	Settled bool `json:"settled"`
}

// DefaultDirectory is where the clusters of a user have their folders.
func DefaultDirectory() (string, error) {
	if base := os.Getenv("XDG_STATE_HOME"); base != "" {
		return filepath.Join(base, "conclave", "cluster"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the home folder: %w (set XDG_STATE_HOME)", err)
	}
	return filepath.Join(home, ".local", "state", "conclave", "cluster"), nil
}

func (c Cluster) stateFile() string { return filepath.Join(c.Directory, "state.json") }

// Kubeconfig is the file that kubectl and clients read.
func (c Cluster) Kubeconfig() string { return filepath.Join(c.Directory, "kubeconfig") }

func (c Cluster) machineDirectory(of topology.Machine) string {
	return filepath.Join(c.Directory, "machines", of.Name)
}

func (c Cluster) cgroup() string { return filepath.Join(cgroupParent, c.Name) }

func (c Cluster) machineCgroup(of topology.Machine) string { return filepath.Join(c.cgroup(), of.Name) }

func (c Cluster) fabric() fabric.Fabric { return fabric.Fabric{Cluster: c.Name} }

// errNoCluster says that there is none of that name.
var errNoCluster = errors.New("no such cluster")

func (c Cluster) load() (*State, error) {
	content, err := os.ReadFile(c.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is %w: %s; make it with: go run ./hack/cluster up --name %s", errNoCluster, c.Name, c.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of the cluster: %w", err)
	}
	var state State
	if err := json.Unmarshal(content, &state); err != nil {
		return nil, fmt.Errorf("the state in %s is broken (%w): take the cluster down, and up again", c.stateFile(), err)
	}
	return &state, nil
}

// save replaces the state at once: a command that is interrupted leaves the old or the new one.
func (c Cluster) save(state *State) error {
	content, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the state of the cluster: %w", err)
	}
	if err := replaceFile(c.stateFile(), content); err != nil {
		return fmt.Errorf("save the state of the cluster: %w", err)
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

// member finds a machine by name, or says which there are.
func (s *State) member(name string) (*Member, error) {
	names := make([]string, 0, len(s.Machines))
	for i := range s.Machines {
		if s.Machines[i].Machine.Name == name {
			return &s.Machines[i], nil
		}
		names = append(names, s.Machines[i].Machine.Name)
	}
	return nil, fmt.Errorf("there is no machine %q; there are %q", name, names)
}

// ensure returns the member of that machine, added if need be.
func (s *State) ensure(of topology.Machine) *Member {
	at := slices.IndexFunc(s.Machines, func(m Member) bool { return m.Machine == of })
	if at < 0 {
		s.Machines = append(s.Machines, Member{Machine: of})
		at = len(s.Machines) - 1
	}
	return &s.Machines[at]
}

// alive tells whether any machine of the cluster runs.
func (s *State) alive() bool {
	return slices.ContainsFunc(s.Machines, func(m Member) bool { return m.Init.Alive() })
}

// lock keeps two commands from changing one cluster at once. The lock's file isn't in the cluster's folder, which goes.
func (c Cluster) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.Cache.Directory, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache folder: %w", err)
	}
	return binaries.Lock(c.lockFile(), func() { c.Say("waiting for another command on cluster %s", c.Name) })
}

func (c Cluster) lockFile() string {
	return filepath.Join(c.Cache.Directory, "cluster-"+c.Name+".lock")
}

// Exists is an error unless there is such a cluster, whether it runs or not.
func (c Cluster) Exists() error {
	_, err := c.load()
	return err
}

// Inits are the processes that the machines live by, as far as they run.
func (c Cluster) Inits() ([]machine.Process, error) {
	state, err := c.load()
	if err != nil {
		return nil, err
	}
	var inits []machine.Process
	for _, member := range state.Machines {
		if member.Init.Alive() {
			inits = append(inits, member.Init)
		}
	}
	return inits, nil
}
