// Package machine boots and kills the machines of a cluster. A machine is a process tree whose first process is the init of
// a PID namespace. It also has its own network, mount, UTS, IPC and cgroup namespaces, so its processes see only the
// machine. When the init is killed, the kernel kills all processes of the machine and removes its mounts, whatever
// containerd and kubelet have left there.
package machine

import (
	"encoding/json"
	"fmt"
	"os"
)

// The folders of a machine. They are the same in every machine.
const (
	EtcDir = "/run/conclave/etc" // Configuration, certificates and kubeconfigs.
	BinDir = "/run/conclave/bin" // The programs, in one folder for each component.
	LibDir = "/var/lib"          // The data that survives a restart of the machine.
	LogDir = "/var/log"
)

// Spec defines a machine.
type Spec struct {
	Name     string    `json:"name"`     // The hostname.
	Netns    string    `json:"netns"`    // The file of the network namespace.
	Cgroup   string    `json:"cgroup"`   // The path of the cgroup in each hierarchy, such as conclave/test/node-1.
	Log      string    `json:"log"`      // The log file of the init, on the host.
	Binds    []Bind    `json:"binds"`    // The folders of the host that are mounted.
	Programs []Program `json:"programs"` // The programs to run.
	Relay    *Relay    `json:"relay,omitempty"`
}

// Bind mounts a folder of the host in the machine.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Program is a program that the machine starts, and restarts whenever it exits.
type Program struct {
	Name string   `json:"name"`
	Path string   `json:"path"`
	Args []string `json:"args"`
	// After is a dependency that must be available before the program starts: an address that accepts connections
	// ("tcp:IP:PORT"), or an API server that is ready ("ready:IP:PORT"). A program that starts too early retries after
	// seconds, so that waiting makes the start faster.
	After string `json:"after,omitempty"`
}

// Relay connects the host to one address of the machine: the init listens on the host's loopback and dials the address from
// inside the machine.
type Relay struct {
	Listen string `json:"listen"`
	Dial   string `json:"dial"`
}

// ReadSpec reads a spec that WriteSpec has written.
func ReadSpec(path string) (Spec, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("cannot read the machine's spec: %w", err)
	}
	var spec Spec
	if err := json.Unmarshal(content, &spec); err != nil {
		return Spec{}, fmt.Errorf("cannot parse the machine's spec %s: %w", path, err)
	}
	return spec, nil
}

// WriteSpec writes a spec for the launcher and the init.
func WriteSpec(path string, spec Spec) error {
	content, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the machine's spec: %w", err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("cannot write the machine's spec: %w", err)
	}
	return nil
}
