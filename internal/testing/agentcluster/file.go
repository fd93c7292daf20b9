package agentcluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// The parts of an agent's configuration file. It is written as JSON, which is valid YAML. Fields that aren't set get
// the agent's defaults.
type (
	File        = config.File
	TLS         = config.TLS
	Group       = control.Group
	Safety      = control.Safety
	Preemption  = control.Preemption
	Timing      = control.Timing
	Application = control.Application
	Service     = control.Service
	ServicePort = control.ServicePort
	Probe       = control.Probe
	Member      = memberlist.Member
	List        = memberlist.List
)

// clone returns a copy with its own slice of members.
func clone(g Group) Group {
	g.Members = slices.Clone(g.Members)
	return g
}

// WriteConfig changes the configuration file of an agent. The new file atomically replaces the old one, as editors do.
func (t *Cluster) WriteConfig(name string, change func(*File)) error {
	a := t.Agent(name)
	change(&a.file)
	return a.writeFile()
}

func (a *Agent) writeFile() error {
	written, err := json.MarshalIndent(a.file, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the configuration of agent %s: %w", a.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(a.config), 0o700); err != nil {
		return err
	}
	return replace(a.config, append(written, '\n'))
}

func replace(path string, content []byte) error {
	draft := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(draft, content, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, path)
}
