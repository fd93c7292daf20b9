// Package machine boots and ends the machines of a cluster. A machine is a process tree of its own: its first process is
// the init of a PID namespace, and has its own network, mounts, hostname, IPC and cgroup namespaces. So it sees only
// itself, as a computer does; and killing the init ends all that ever started in it, its mounts included, at once and
// with certainty, whatever containerd and kubelet have left there.
package machine

import (
	"encoding/json"
	"fmt"
	"os"
)

// Where a machine finds its things, the same in every machine.
const (
	EtcDir = "/run/conclave/etc" // Configuration, certificates and kubeconfigs.
	BinDir = "/run/conclave/bin" // One folder for each component of the cache.
	LibDir = "/var/lib"          // What survives a restart of the machine.
	LogDir = "/var/log"
)

// Spec is all that it takes to boot a machine.
type Spec struct {
	Name     string    `json:"name"`     // Its hostname.
	Netns    string    `json:"netns"`    // The file of its network namespace.
	Cgroup   string    `json:"cgroup"`   // Its path in each hierarchy, such as conclave/test/node-1.
	Log      string    `json:"log"`      // The host's file for what the init itself has to say.
	Binds    []Bind    `json:"binds"`    // What it sees of the host's files beside the root file system.
	Programs []Program `json:"programs"` // Started in this order, each again when it ends.
	Relay    *Relay    `json:"relay,omitempty"`
}

// Bind shows a folder of the host at a place in the machine.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Program is started with the machine, and again whenever it ends.
type Program struct {
	Name string   `json:"name"`
	Path string   `json:"path"`
	Args []string `json:"args"`
	// After is what must be there before the program starts: something that accepts connections ("tcp:IP:PORT"), or an
	// API server that says it's ready ("ready:IP:PORT"). A program that starts too early backs off for seconds, so
	// waiting is what makes a cluster start fast.
	After string `json:"after,omitempty"`
}

// Relay lets the host reach one address of the machine: the init listens on the host's loopback and dials from inside.
type Relay struct {
	Listen string `json:"listen"`
	Dial   string `json:"dial"`
}

// ReadSpec reads what WriteSpec wrote.
func ReadSpec(path string) (Spec, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("read the machine's spec: %w", err)
	}
	var spec Spec
	if err := json.Unmarshal(content, &spec); err != nil {
		return Spec{}, fmt.Errorf("parse the machine's spec %s: %w", path, err)
	}
	return spec, nil
}

// WriteSpec writes the spec where the launcher and the init will read it.
func WriteSpec(path string, spec Spec) error {
	content, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the machine's spec: %w", err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write the machine's spec: %w", err)
	}
	return nil
}
