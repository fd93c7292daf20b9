package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/memory"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

var errClosed = errors.New("the agent is shutting down")

// StoreGroup checks new settings of a group and stores the operator's document that they come from, together with the
// member list, so that a restart finds them. It returns the settings with the list to adopt, for ApplyGroup. It doesn't
// change the running group.
//
// If the group has another UID than the running group of the same name, the caller must leave the running group first.
// Otherwise, the caller must have checked that the settings preserve the meaning of grants: see
// config.Group.CheckSafetyChange.
func (a *Agent) StoreGroup(next config.Group, document []byte) (stored config.Group, err error) {
	err = a.change(func() error {
		stored, err = a.prepare(next, document)
		return err
	})
	return stored, err
}

// ApplyGroup makes the agent take part in a group with stored settings. If this fails, the agent leaves the group.
// Calls for different groups may be concurrent.
func (a *Agent) ApplyGroup(ctx context.Context, stored config.Group) error {
	return a.change(func() error {
		err := a.apply(ctx, stored)
		if err != nil {
			a.leaveGroup(ctx, stored.Name)
		}
		return err
	})
}

// LeaveGroup leaves a group. A coordinator first hands the office over.
func (a *Agent) LeaveGroup(ctx context.Context, name string) error {
	return a.change(func() error {
		a.leaveGroup(ctx, name)
		return nil
	})
}

// change changes one group. A closed agent refuses that.
func (a *Agent) change(act func() error) error {
	a.applying.RLock()
	defer a.applying.RUnlock()
	if a.closed.Load() {
		return errClosed
	}
	return act()
}

// prepare chooses the list that the agent must run, and stores it with the document, if there is one. It returns the
// settings with this list.
func (a *Agent) prepare(next config.Group, document []byte) (config.Group, error) {
	record, err := a.options.Store.Load(next.Name)
	if err != nil {
		return next, fmt.Errorf("group %s: %w", next.Name, err)
	}
	if record.UID != next.UID {
		record.List = nil
	}
	list, warning, err := state.ChooseList(record.List, next.List, next.Safety.Mode, next.UID != "")
	if err != nil {
		return next, err
	}
	if warning != "" {
		a.options.Log.Warn(warning, "group", next.Name)
	}
	next.List = list
	return next, a.options.Store.Save(next.Name, state.Record{
		UID: next.UID, List: &list, Lease: next.Safety.Lease, Document: string(document), Revision: next.Revision,
	})
}

// prepareFirst prepares a group of the first configuration. On a full disk, a restarted agent continues with what it
// had stored: a member that doesn't start costs the group more than an older list or a shorter lease.
func (a *Agent) prepareFirst(g config.Group) (config.Group, error) {
	next, err := a.prepare(g, nil)
	if !Temporary(err) {
		return next, err
	}
	stored, unreadable := a.options.Store.Load(g.Name)
	g.Safety.LimitLease(stored.Lease)
	if unreadable != nil || stored.UID != g.UID || stored.List == nil ||
		g.Safety.Lease > stored.Lease || !g.LeaseSuitsTiming() {
		return g, err
	}
	g.List = *stored.List
	a.notStored = append(a.notStored, err)
	return g, nil
}

// apply joins a group, joins it again with other settings, or switches to its new settings and its new list. If apply
// fails, the caller must leave the group or restore its configuration.
func (a *Agent) apply(ctx context.Context, next config.Group) error {
	before, known := a.groupConfig(next.Name)
	a.setGroupConfig(next.Name, next)
	a.connect() // New members must be reachable before the first message to them.
	switch {
	case !known:
		a.options.Log.Info("joining group", "group", next.Name, "version", next.List.Version)
		return a.join(ctx, next, false)
	case len(next.FixedSettings(before)) > 0:
		a.options.Log.Info("joining group again with new settings", "group", next.Name, "settings",
			next.ChangedSettings(before))
		return a.rejoin(ctx, next)
	}
	return a.reconfigure(ctx, before, next)
}

func (a *Agent) join(ctx context.Context, settings config.Group, excluded bool) error {
	key := state.KeyOf(&settings)
	record, err := a.options.Store.Join(key, settings.Safety.Lease)
	if err != nil {
		return err
	}
	stored, remembered, err := a.openMemory(&settings)
	if err != nil {
		return err
	}
	g, err := group.New(group.Config{
		Self: a.self, Life: a.options.Life, Clock: a.options.Clock,
		NewTimer: func(call func()) group.Timer { return a.alarm.NewTimer(call) }, Group: settings, Transport: a.transport,
		Metrics: a.options.Metrics.Group(settings.Name), Log: a.options.Log.With("group", settings.Name),
		OnReport: a.options.OnReport, Problems: a.reportedProblems, Excluded: excluded,
		Identity: a.options.Store.Identity(), Joined: record.Joined, Reserved: record.Reserved, Peers: record.Peers,
		Reserve: func(reserved election.Term, version uint32, peers map[string]election.Identity) error {
			return a.options.Store.Reserve(key, reserved, version, peers)
		},
		LongestLease: record.Lease, OutSince: a.outSince(),
		TraceFolder: a.options.TraceFolder, Memory: stored, Remembered: remembered, Claimed: a.claimed(&settings),
	})
	if err != nil {
		stored.Close()
		return err
	}
	if record.Lease > settings.Safety.Lease && remembered == nil {
		a.options.Log.Info("waiting for the previous, longer lease to expire before granting", "group",
			settings.Name, "lease", record.Lease)
	}
	joined := &joinedGroup{
		Group: g, uid: settings.UID, stopProbe: func() {}, stopLeaseTimer: a.startLeaseTimer(settings, record.Lease),
	}
	if settings.Probe != nil {
		var probing context.Context
		probing, joined.stopProbe = context.WithCancel(context.WithoutCancel(ctx))
		go probe(probing, *settings.Probe, g)
	}
	a.startService(ctx, &settings, joined)
	a.mu.Lock()
	a.groups[settings.Name] = joined
	a.mu.Unlock()
	return nil
}

// openMemory opens the memory of a group, and returns what earlier incarnations granted, and their tenures, nil if that
// is unknown.
func (a *Agent) openMemory(g *config.Group) (*memory.File, *memory.Record, error) {
	owner := memory.Owner{
		Domain: a.Config().Domain, Member: a.self, Group: g.Name, UID: g.UID, Available: g.Safety.Mode == office.Available,
	}
	file, remembered, without, err := a.options.Memory.Open(owner)
	if without != nil {
		a.options.Log.Warn("cannot remember grants: after a restart, this agent waits for the lease",
			"group", g.Name, "error", without)
	}
	return file, remembered, err
}

// reconfigure switches to other settings that a running election can change, and to another list.
func (a *Agent) reconfigure(ctx context.Context, before, next config.Group) error {
	changed, joined, longest := next.ChangedSettings(before), a.joined(next.Name), time.Duration(0)
	if len(changed) > 0 {
		joined.stopLeaseTimer()
		record, err := a.options.Store.Join(state.KeyOf(&next), next.Safety.Lease)
		if err != nil {
			return err
		}
		longest = record.Lease
	}
	if err := joined.Use(context.WithoutCancel(ctx), next); err != nil {
		return err
	}
	if len(changed) > 0 {
		// Until now, the group may have granted for the lease that it had before.
		joined.stopLeaseTimer = a.startLeaseTimer(next, longest)
		a.options.Log.Info("switched to new settings", "group", next.Name, "settings", changed)
	}
	if next.List.Version != before.List.Version {
		a.options.Log.Info("adopted member list", "group", next.Name, "version", next.List.Version)
	}
	if slices.Contains(changed, "service") {
		joined.stopService(false)
		a.startService(ctx, &next, joined)
	}
	return nil
}

// rejoin leaves a group and joins it with other settings that a running election cannot
// change. The exclusion by the operator remains.
func (a *Agent) rejoin(ctx context.Context, next config.Group) error {
	joined := a.joined(next.Name)
	ctx = context.WithoutCancel(ctx) // A caller that stops waiting doesn't interrupt this.
	excluded, err := joined.Excluded(ctx)
	if err != nil {
		return err
	}
	a.end(ctx, joined, control.EndHandOver)
	return a.join(ctx, next, excluded)
}

// leaveGroup leaves a group, if the agent is in it, and removes its configuration.
func (a *Agent) leaveGroup(ctx context.Context, name string) {
	if joined := a.joined(name); joined != nil {
		a.end(context.WithoutCancel(ctx), joined, control.EndMembership)
		a.mu.Lock()
		delete(a.groups, name)
		a.mu.Unlock()
		a.options.Log.Info("left group", "group", name)
	}
	a.setGroupConfig(name)
	a.connect()
}

// end ends the participation in a group. cause is why a tenure of this process ends.
func (a *Agent) end(ctx context.Context, joined *joinedGroup, cause control.EndCause) {
	joined.leave(ctx, cause) // It still receives messages meanwhile.
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastLeft = a.options.Clock.Now()
	a.claims[joined.Name()] = claim{joined.uid, joined.Claimed()}
}

func (a *Agent) claimed(g *config.Group) election.Term {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if last := a.claims[g.Name]; last.uid == g.UID {
		return last.term
	}
	return 0
}

// outSince returns since when neither this process nor an earlier one has been in a group that
// this process isn't in: since it locked the store, or last left any group.
func (a *Agent) outSince() election.Tick {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.lastLeft != 0 {
		return a.lastLeft
	}
	return election.Tick(a.options.Store.LockedAt() - a.options.Clock.Origin())
}

func (g *joinedGroup) leave(ctx context.Context, cause control.EndCause) {
	g.stopLeaseTimer()
	g.stopProbe()
	g.Leave(ctx, cause)
	g.stopService(cause == control.EndStopped) // Until then, clients still reach the successor.
}

func (a *Agent) groupConfig(name string) (config.Group, bool) {
	for _, g := range a.Config().Groups {
		if g.Name == name {
			return g, true
		}
	}
	return config.Group{}, false
}

// setGroupConfig sets the settings of a group in force, or removes them if there are none. The group comes first, so
// that the newest addresses of members in a file win: see peers. Callers of Config may still read the former settings.
func (a *Agent) setGroupConfig(name string, settings ...config.Group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := *a.config
	others := slices.DeleteFunc(slices.Clone(c.Groups), func(g config.Group) bool { return g.Name == name })
	c.Groups = append(settings, others...)
	a.config = &c
}

// startLeaseTimer handles a group whose lease has become shorter. When the longest lease of earlier grants has expired,
// it records that only the shorter one is in force. Once stop has returned, it records nothing.
func (a *Agent) startLeaseTimer(g config.Group, longest time.Duration) (stop func()) {
	lease := g.Safety.Lease
	if longest <= lease {
		return func() {}
	}
	var mu sync.Mutex
	stopped := false
	timer := time.AfterFunc(longest, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		if err := a.options.Store.LeaseExpired(state.KeyOf(&g), lease); err != nil {
			a.options.Log.Warn("cannot record that the longer lease has expired; the next start waits for it again",
				"group", g.Name, "error", err)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}
