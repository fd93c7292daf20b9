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
	options   Options
	self      string
	transport *transport.Transport
	// reloading is locked for all groups, or shared by those who change one each.
	// Nothing changes any more when the agent is closed.
	applying sync.RWMutex
	closed   bool
	// peering: one at a time says who the peers are.
	connecting sync.Mutex

	mu sync.RWMutex
	// config is what runs: the lists in it are those that were adopted.
	config   *config.Config
	groups   map[string]*joinedGroup
	problems []string
}

// member is this process in one group.
type joinedGroup struct {
	*group.Group

	stopProbe, stopLeaseTimer func()
}

// New starts an agent. It changes the config: the lists in it become those that
// are in force.
func New(ctx context.Context, c *config.Config, parts Options) (*Agent, error) {
	a := &Agent{options: parts, self: c.Self, config: c, groups: map[string]*joinedGroup{}}
	for i := range c.Groups {
		g := &c.Groups[i]
		if err := a.chooseList(c.Position(g.Name, "version"), g, nil); err != nil {
			return nil, err
		}
	}
	a.transport = transport.New(transport.Config{
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
func (a *Agent) chooseList(where string, g *config.Group, running *config.List) error {
	kept := running
	if kept == nil {
		last, found, err := a.options.Store.Load(state.KeyOf(g))
		if err != nil {
			return fmt.Errorf("group %s: %w", g.Name, err)
		}
		if found {
			kept = &last
		}
	}
	choice, err := state.ChooseList(kept, g.List, g.Safety.Mode, a.options.Clock.CurrentTerm())
	if err != nil {
		if where == "" {
			return err
		}
		return fmt.Errorf("%s: group %s: %w", where, g.Name, err)
	}
	if choice.Warning != "" {
		a.options.Log.Warn(choice.Warning, "group", g.Name)
	}
	if choice.Save {
		if err := a.options.Store.Save(state.KeyOf(g), choice.List, g.Safety.Lease); err != nil {
			return err
		}
	}
	g.List = choice.List
	return nil
}

func (a *Agent) join(ctx context.Context, of config.Group, withheld bool) error {
	promised, err := a.options.Store.RecordLease(state.KeyOf(&of), of.Safety.Lease)
	if err != nil {
		return err
	}
	g, err := group.New(group.Config{
		Self: a.self, Life: a.options.Life, Clock: a.options.Clock, Group: of, Transport: a.transport,
		Metrics: a.options.Metrics(of.Name), Log: a.options.Log.With("group", of.Name),
		OnReport: a.options.OnReport, Problems: a.Problems, Excluded: withheld, LongestLease: promised,
	})
	if err != nil {
		return err
	}
	m := &joinedGroup{Group: g, stopProbe: func() {}, stopLeaseTimer: a.startLeaseTimer(of, promised)}
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

func (m *joinedGroup) leave(ctx context.Context) {
	m.stopLeaseTimer()
	m.stopProbe()
	m.Leave(ctx)
}

// Reload goes over to another config, group by group. What can't be taken over
// is in the error; everything else goes on as it was.
func (a *Agent) Reload(ctx context.Context, next *config.Config) error {
	a.applying.Lock()
	defer a.applying.Unlock()
	if a.closed {
		return errClosed
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
		adopted, err := a.applyFromFile(ctx, next, before, g, known)
		if err != nil {
			failed = append(failed, err)
		}
		if err == nil || known {
			merged.Groups = append(merged.Groups, adopted)
		}
	}
	for name := range running {
		a.leaveGroup(ctx, name)
	}
	a.mu.Lock()
	a.config = &merged
	a.mu.Unlock()
	a.connect()
	return errors.Join(failed...)
}

// adopt joins a group, or goes over to its new list. It returns the group as it
// runs from now on.
func (a *Agent) applyFromFile(
	ctx context.Context, c *config.Config, before, next config.Group, known bool,
) (config.Group, error) {
	if !known {
		if err := a.chooseList(c.Position(next.Name, "version"), &next, nil); err != nil {
			return next, err
		}
		a.options.Log.Info("joins a group", "group", next.Name, "version", next.List.Version)
		return next, a.join(ctx, next, false)
	}
	if err := a.chooseList(c.Position(next.Name, "version"), &next, &before.List); err != nil {
		return before, err
	}
	a.connect(next) // The new members must be reachable before the first message to them.
	if err := a.adoptList(ctx, before, next); err != nil {
		return before, err
	}
	return next, nil
}

// adoptList goes over to a list that was chosen.
func (a *Agent) adoptList(ctx context.Context, before, next config.Group) error {
	g, _ := a.Find(next.Name)
	if err := g.Adopt(ctx, next.List, next.Provenance); err != nil {
		return err
	}
	if next.List.Version != before.List.Version {
		a.options.Log.Info("adopted a member list", "group", next.Name, "version", next.List.Version)
	}
	return nil
}

// connect has the members of all groups as peers, and those of besides.
func (a *Agent) connect(besides ...config.Group) {
	a.connecting.Lock()
	defer a.connecting.Unlock()
	a.transport.SetPeers(addresses(a.Config(), besides...))
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
	if a.options.OnReport == nil {
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
	if a.options.Problems != nil {
		problems = append(problems, a.options.Problems()...)
	}
	problems = append(problems, a.transport.Problems()...)
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
	a.applying.Lock()
	defer a.applying.Unlock()
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
	a.transport.Close()
}

// Temporary reports whether a config that was refused may be taken over later
// as it is: the disk was full, say.
func Temporary(err error) bool {
	var failed syscall.Errno
	return errors.As(err, &failed)
}
