// Package agent is the runtime of the Machines: one agent for each process, in
// one or more groups. It owns connections, timers and files, and decides
// nothing.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Options are what an agent is made of, besides its config.
type Options struct {
	Clock    *clock.Clock
	Life     uint32
	Listener net.Listener
	// Security is nil for plain TCP.
	Security transport.Security
	Store    *state.Store
	Metrics  func(group string) group.Metrics
	// Problems, if it isn't nil, says what else is wrong: call Refresh when it changes.
	Problems func() []string
	// OnReport, if it isn't nil, is called with each report of a group that says
	// something new. It mustn't take long.
	OnReport func(control.Report)
	Log      *slog.Logger
}

// Agent takes part in elections.
type Agent struct {
	parts Options
	self  string
	mesh  *transport.Transport
	// reloading is locked for all groups, or shared by those who change one each.
	// Nothing changes any more when the agent is closed.
	reloading sync.RWMutex
	closed    bool
	// peering: one at a time says who the peers are.
	peering sync.Mutex

	mu sync.RWMutex
	// config is what runs: the lists in it are those that were adopted.
	config   *config.Config
	groups   map[string]*member
	problems []string
}

// member is this process in one group.
type member struct {
	*group.Group

	stopProbe, stopOutlasting func()
}

// New starts an agent. It changes the config: the lists in it become those that
// are in force.
func New(ctx context.Context, c *config.Config, parts Options) (*Agent, error) {
	a := &Agent{parts: parts, self: c.Self, config: c, groups: map[string]*member{}}
	for i := range c.Groups {
		g := &c.Groups[i]
		if err := a.choose(c.Position(g.Name, "version"), g, nil); err != nil {
			return nil, err
		}
	}
	a.mesh = transport.New(transport.Config{
		Self: c.Self, Domain: c.Domain, Life: parts.Life, Listener: parts.Listener, Security: parts.Security,
		Authorize: a.admit, CurrentTerm: parts.Clock.CurrentTerm, Events: a, OnChange: a.Refresh, Log: parts.Log,
	})
	for _, of := range c.Groups {
		if err := a.join(ctx, of, false); err != nil {
			a.Close(ctx)
			return nil, err
		}
	}
	a.connect()
	return a, nil
}

// choose puts the list into g that the agent must run, and sees to it that a
// restart will find it. What it complains about is where, if that isn't "".
func (a *Agent) choose(where string, g *config.Group, running *config.List) error {
	kept := running
	if kept == nil {
		last, found, err := a.parts.Store.Load(state.KeyOf(g))
		if err != nil {
			return fmt.Errorf("group %s: %w", g.Name, err)
		}
		if found {
			kept = &last
		}
	}
	choice, err := state.ChooseList(kept, g.List, g.Safety.Mode, a.parts.Clock.CurrentTerm())
	if err != nil {
		if where == "" {
			return err
		}
		return fmt.Errorf("%s: group %s: %w", where, g.Name, err)
	}
	if choice.Warning != "" {
		a.parts.Log.Warn(choice.Warning, "group", g.Name)
	}
	if choice.Save {
		if err := a.parts.Store.Save(state.KeyOf(g), choice.List, g.Safety.Lease); err != nil {
			return err
		}
	}
	g.List = choice.List
	return nil
}

func (a *Agent) join(ctx context.Context, of config.Group, withheld bool) error {
	promised, err := a.parts.Store.RecordLease(state.KeyOf(&of), of.Safety.Lease)
	if err != nil {
		return err
	}
	g, err := group.New(group.Config{
		Self: a.self, Life: a.parts.Life, Clock: a.parts.Clock, Group: of, Transport: a.mesh,
		Metrics: a.parts.Metrics(of.Name), Log: a.parts.Log.With("group", of.Name),
		OnReport: a.parts.OnReport, Problems: a.Problems, Excluded: withheld, LongestLease: promised,
	})
	if err != nil {
		return err
	}
	m := &member{Group: g, stopProbe: func() {}, stopOutlasting: a.outlast(of, promised)}
	if of.Probe != nil {
		var probing context.Context
		probing, m.stopProbe = context.WithCancel(context.WithoutCancel(ctx))
		go probe(probing, *of.Probe, g)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.groups[of.Name] = m
	return nil
}

func (m *member) leave(ctx context.Context) {
	m.stopOutlasting()
	m.stopProbe()
	m.Leave(ctx)
}

// Reload goes over to another config, group by group. What can't be taken over
// is in the error; everything else goes on as it was.
func (a *Agent) Reload(ctx context.Context, next *config.Config) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	if a.closed {
		return errEnding
	}
	if err := config.CheckReload(a.Config(), next); err != nil {
		return err
	}
	running := map[string]config.Group{}
	for _, g := range a.Config().Groups {
		running[g.Name] = g
	}
	merged := *next
	merged.Groups = nil
	var failed []error
	for _, g := range next.Groups {
		before, known := running[g.Name]
		delete(running, g.Name)
		adopted, err := a.adopt(ctx, next, before, g, known)
		if err != nil {
			failed = append(failed, err)
		}
		if err == nil || known {
			merged.Groups = append(merged.Groups, adopted)
		}
	}
	for name := range running {
		a.drop(ctx, name)
	}
	a.mu.Lock()
	a.config = &merged
	a.mu.Unlock()
	a.connect()
	return errors.Join(failed...)
}

// adopt joins a group, or goes over to its new list. It returns the group as it
// runs from now on.
func (a *Agent) adopt(
	ctx context.Context, c *config.Config, before, next config.Group, known bool,
) (config.Group, error) {
	if !known {
		if err := a.choose(c.Position(next.Name, "version"), &next, nil); err != nil {
			return next, err
		}
		a.parts.Log.Info("joins a group", "group", next.Name, "version", next.List.Version)
		return next, a.join(ctx, next, false)
	}
	if err := a.choose(c.Position(next.Name, "version"), &next, &before.List); err != nil {
		return before, err
	}
	a.connect(next) // The new members must be reachable before the first message to them.
	if err := a.goOver(ctx, before, next); err != nil {
		return before, err
	}
	return next, nil
}

// goOver goes over to a list that was chosen.
func (a *Agent) goOver(ctx context.Context, before, next config.Group) error {
	g, _ := a.Find(next.Name)
	if err := g.Adopt(ctx, next.List, next.Provenance); err != nil {
		return err
	}
	if next.List.Version != before.List.Version {
		a.parts.Log.Info("adopted a member list", "group", next.Name, "version", next.List.Version)
	}
	return nil
}

// connect has the members of all groups as peers, and those of besides.
func (a *Agent) connect(besides ...config.Group) {
	a.peering.Lock()
	defer a.peering.Unlock()
	a.mesh.SetPeers(addresses(a.Config(), besides...))
}

// Config is what runs now. It must not be changed.
func (a *Agent) Config() *config.Config {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.config
}

// addresses are those of all members of all lists in force. Groups that are
// given besides count before those of the config.
func addresses(c *config.Config, besides ...config.Group) map[string]string {
	all := map[string]string{}
	for _, g := range append(besides, c.Groups...) {
		for list := &g.List; list != nil; list = list.Previous {
			for _, m := range list.Members {
				if all[m.Name] == "" {
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
	m, ok := a.groups[name]
	if !ok {
		return nil, false
	}
	return m.Group, true
}

// SetProblems sets what is wrong with the agent, for whoever asks whether it is
// ready; nothing if all is well.
func (a *Agent) SetProblems(problems ...string) {
	a.mu.Lock()
	a.problems = problems
	a.mu.Unlock()
	a.Refresh()
}

// Refresh has all groups look at what is wrong with the agent, and who is connected.
func (a *Agent) Refresh() {
	if a.parts.OnReport == nil {
		return
	}
	for _, name := range a.Names() {
		if g, ok := a.Find(name); ok {
			g.Refresh()
		}
	}
}

// Problems is what is wrong.
func (a *Agent) Problems() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	problems := slices.Clone(a.problems)
	if a.parts.Problems != nil {
		problems = append(problems, a.parts.Problems()...)
	}
	problems = append(problems, a.mesh.Problems()...)
	for _, name := range slices.Sorted(maps.Keys(a.groups)) {
		problems = append(problems, a.groups[name].Problems()...)
	}
	return problems
}

// admit wants a certificate for one of our groups: that of another group, whoever
// has it, must not get in the way of a member.
func (a *Agent) admit(peer string, members map[string]string) error {
	for _, g := range a.Config().Groups {
		if members[g.Name] == peer {
			return nil
		}
	}
	return fmt.Errorf("the certificate of %q is for none of the groups of this agent", peer)
}

// ReceiveMessage is for transport.Events.
func (a *Agent) ReceiveMessage(from string, letter *wire.Message) {
	if g, ok := a.Find(letter.Group); ok {
		g.ReceiveMessage(from, letter)
	}
}

// PeerEnded is for transport.Events.
func (a *Agent) PeerEnded(peer string, life uint32) {
	for _, name := range a.Names() {
		if g, ok := a.Find(name); ok {
			g.PeerEnded(peer, life)
		}
	}
}

// Close leaves all groups, hands over what the agent holds if ctx leaves the
// time, and says goodbye.
func (a *Agent) Close(ctx context.Context) {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	a.mu.RLock()
	var leaving sync.WaitGroup
	for _, m := range a.groups { // They stay where they are: who hands over must be able to hear.
		leaving.Go(func() { m.leave(ctx) })
	}
	a.mu.RUnlock()
	leaving.Wait()
	a.mesh.Close()
}

// Temporary reports whether a config that was refused may be taken over later
// as it is: the disk was full, say.
func Temporary(err error) bool {
	var failed syscall.Errno
	return errors.As(err, &failed)
}
