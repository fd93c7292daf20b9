package agentcluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// File is an agent's configuration file. It is written as JSON, which is valid YAML.
type File struct {
	Self   string  `json:"self"`
	Domain string  `json:"domain,omitempty"`
	API    string  `json:"api"`
	Listen string  `json:"listen"`
	State  string  `json:"state"`
	TLS    TLS     `json:"tls"`
	Groups []Group `json:"groups"`
}

// TLS contains the paths of the agent's certificate files.
type TLS struct {
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	CAFile   string `json:"caFile,omitempty"`
	Insecure bool   `json:"insecure,omitempty"`
}

// Group is a group in the file. Fields that aren't set get the agent's defaults.
type Group struct {
	Name        string       `json:"name"`
	Algorithm   string       `json:"algorithm,omitempty"`
	Safety      *Safety      `json:"safety,omitempty"`
	Preemption  *Preemption  `json:"preemption,omitempty"`
	Timing      *Timing      `json:"timing,omitempty"`
	Application *Application `json:"application,omitempty"`
	Version     uint32       `json:"version,omitempty"`
	Members     []Member     `json:"members"`
	Previous    *List        `json:"previous,omitempty"`
	Departed    []string     `json:"departed,omitempty"`
	Floor       uint64       `json:"floor,omitempty"`
}

// Safety is the group's safety mode.
type Safety struct {
	Mode        string `json:"mode"`
	LeaseMillis int    `json:"leaseMillis,omitempty"`
}

// Preemption is the policy by which a process of higher priority takes over.
type Preemption struct {
	Policy       string `json:"policy"`
	StableMillis *int   `json:"stableMillis,omitempty"`
}

// Timing contains the group's timeouts.
type Timing struct {
	HeartbeatMillis        int `json:"heartbeatMillis,omitempty"`
	SuspicionTimeoutMillis int `json:"suspicionTimeoutMillis,omitempty"`
	StaggerMillis          int `json:"staggerMillis,omitempty"`
	ReplyMillis            int `json:"replyMillis,omitempty"`
	DrainMillis            int `json:"drainMillis,omitempty"`
}

// Application defines how the agent checks the health of its application.
type Application struct {
	Session string `json:"session,omitempty"`
	Probe   *Probe `json:"probe,omitempty"`
}

// Probe is an HTTP health check of the application.
type Probe struct {
	URL           string `json:"url"`
	PeriodMillis  int    `json:"periodMillis,omitempty"`
	TimeoutMillis int    `json:"timeoutMillis,omitempty"`
	Failures      int    `json:"failures,omitempty"`
}

// Member is one process.
type Member struct {
	Name     string `json:"name"`
	Priority uint32 `json:"priority"`
	Address  string `json:"address"`
}

// List is one version of the member list.
type List struct {
	Version uint32   `json:"version"`
	Members []Member `json:"members"`
}

// clone returns a copy with its own slice of members.
func (g Group) clone() Group {
	g.Members = slices.Clone(g.Members)
	return g
}

// WriteConfig changes the configuration file of an agent. The new file atomically
// replaces the old one, as editors do.
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
