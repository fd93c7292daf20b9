package agentcluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// File is an agent's config file. JSON is YAML, too.
type File struct {
	Self   string  `json:"self"`
	Domain string  `json:"domain,omitempty"`
	API    string  `json:"api"`
	Listen string  `json:"listen"`
	State  string  `json:"state"`
	TLS    TLS     `json:"tls"`
	Groups []Group `json:"groups"`
}

// TLS names the files of the agent's certificate.
type TLS struct {
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	CAFile   string `json:"caFile,omitempty"`
	Insecure bool   `json:"insecure,omitempty"`
}

// Group is a group in the file. What isn't set has the agent's default.
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

// Safety says what it takes to be coordinator.
type Safety struct {
	Mode        string `json:"mode"`
	LeaseMillis int    `json:"leaseMillis,omitempty"`
}

// Preemption says when a higher process takes over.
type Preemption struct {
	Policy        string `json:"policy"`
	StableSeconds *int   `json:"stableSeconds,omitempty"`
}

// Timing are the group's waits.
type Timing struct {
	HeartbeatMillis int `json:"heartbeatMillis,omitempty"`
	PatienceMillis  int `json:"patienceMillis,omitempty"`
	StaggerMillis   int `json:"staggerMillis,omitempty"`
	ReplyMillis     int `json:"replyMillis,omitempty"`
	DrainMillis     int `json:"drainMillis,omitempty"`
}

// Application says how the agent knows that its application is well.
type Application struct {
	Session string `json:"session,omitempty"`
	Probe   *Probe `json:"probe,omitempty"`
}

// Probe asks the application.
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

// clone returns a group whose members can be changed without changing others'.
func (g Group) clone() Group {
	g.Members = slices.Clone(g.Members)
	return g
}

// WriteConfig changes the file of an agent, as an editor would: the new one
// replaces the old one in one go.
func (t *Cluster) WriteConfig(name string, change func(*File)) error {
	a := t.Agent(name)
	change(&a.file)
	return a.writeFile()
}

func (a *Agent) writeFile() error {
	written, err := json.MarshalIndent(a.file, "", "  ")
	if err != nil {
		return fmt.Errorf("write the config of %s: %w", a.Name, err)
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
