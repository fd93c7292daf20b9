// Package agent is the runtime of the Machines: one agent for each process, in
// one or more groups. It owns connections, timers and files, and decides
// nothing.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/mesh"
	"github.com/conclave-dev/conclave/internal/wire"
)

// Parts are what an agent is made of, besides its config.
type Parts struct {
	Clock    *clock.Clock
	Life     uint32
	Listener net.Listener
	// Security is nil for plain TCP.
	Security mesh.Security
	Meters   func(group string) group.Meter
	Log      *slog.Logger
}

// Agent takes part in elections.
type Agent struct {
	parts Parts
	mesh  *mesh.Mesh

	mu     sync.RWMutex
	config *config.Config
	groups map[string]*group.Group
}

// New starts an agent.
func New(c *config.Config, parts Parts) (*Agent, error) {
	a := &Agent{parts: parts, config: c, groups: map[string]*group.Group{}}
	a.mesh = mesh.New(mesh.Config{
		Self: c.Self, Domain: c.Domain, Life: parts.Life, Listener: parts.Listener, Security: parts.Security,
		Events: a, Log: parts.Log,
	})
	for _, of := range c.Groups {
		if err := a.join(of); err != nil {
			a.Close(context.Background())
			return nil, err
		}
	}
	a.mesh.SetPeers(addresses(c))
	return a, nil
}

func (a *Agent) join(of config.Group) error {
	g, err := group.New(group.Config{
		Self: a.config.Self, Life: a.parts.Life, Clock: a.parts.Clock, Group: of, Post: a.mesh,
		Meter: a.parts.Meters(of.Name), Log: a.parts.Log.With("group", of.Name),
	})
	if err != nil {
		return fmt.Errorf("group %s: %w", of.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.groups[of.Name] = g
	return nil
}

// addresses are those of all members of all lists in force.
func addresses(c *config.Config) map[string]string {
	all := map[string]string{}
	for _, g := range c.Groups {
		for list := &g.List; list != nil; list = list.Previous {
			for _, m := range list.Members {
				if _, newer := all[m.Name]; !newer {
					all[m.Name] = m.Address
				}
			}
		}
	}
	delete(all, c.Self)
	return all
}

// Names are the names of the groups.
func (a *Agent) Names() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Sorted(maps.Keys(a.groups))
}

// Find looks a group up.
func (a *Agent) Find(name string) (*group.Group, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	g, ok := a.groups[name]
	return g, ok
}

// Letter is for mesh.Events.
func (a *Agent) Letter(from string, letter *wire.Letter) {
	if g, ok := a.Find(letter.Group); ok {
		g.Letter(from, letter)
	}
}

// Gone is for mesh.Events.
func (a *Agent) Gone(peer string, life uint32) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, g := range a.groups {
		g.Gone(peer, life)
	}
}

// Close leaves all groups, hands over what the agent holds if ctx leaves the
// time, and says goodbye.
func (a *Agent) Close(ctx context.Context) {
	a.mu.RLock()
	var leaving sync.WaitGroup
	for _, g := range a.groups { // They stay where they are: who hands over must be able to hear.
		leaving.Go(func() { g.Leave(ctx) })
	}
	a.mu.RUnlock()
	leaving.Wait()
	a.mesh.Close()
}
