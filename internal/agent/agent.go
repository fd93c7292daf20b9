// Package agent runs one agent: a process that takes part in the elections of one or
// more groups. It owns the connections, timers and files around the pure election code.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/agent/alarm"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/memory"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/proxy"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// Options are the dependencies of an agent, besides its configuration.
type Options struct {
	Clock *clock.Clock
	// Life is the incarnation of this process.
	Life uint32
	// Listener accepts connections of peers. If it is nil, New listens on the address in the configuration.
	Listener net.Listener
	// Rate, if it isn't nil, limits the frames of all peers together.
	Rate *rate.Limiter
	// Certificates is nil for plain TCP.
	Certificates *identity.Files
	Store        *state.Store
	// Memory is what survives the end of the process, in addition to Store. It may be nil.
	Memory  *memory.Dir
	Metrics *metrics.Registry
	// Problems, if it isn't nil, returns further reasons why the agent isn't ready, and problems that don't prevent that.
	// Call Refresh when its result changes.
	Problems func() (own, others []string)
	// OnReport, if it isn't nil, is called with each report of a group that differs from
	// the previous one. It must not block.
	OnReport func(control.Report)
	// TraceFolder, if it isn't empty, is the folder for traces of the elections.
	TraceFolder string
	Log         *slog.Logger
}

// Agent takes part in elections. A nil Agent is in no group.
type Agent struct {
	options   Options
	self      string
	transport *transport.Transport
	alarm     *alarm.Alarm
	// applying is locked exclusively to change several groups, and shared to change one.
	// A closed agent refuses all changes.
	applying sync.RWMutex
	closed   atomic.Bool
	// connecting serializes changes of the transport's peers.
	connecting sync.Mutex

	carriers *proxy.Shared // for the connections of all groups with a service

	mu sync.RWMutex
	// config is the configuration in force. Its lists are the adopted ones.
	config   *config.Config
	groups   map[string]*joinedGroup
	problems []string
	// notServed has why the agent doesn't listen for clients of groups, by name.
	notServed map[string]string
	// claims has the highest terms in which the agent has claimed the office of groups that it
	// left, by name. If it joins again, it has the same incarnation.
	claims   map[string]claim
	lastLeft election.Tick

	notStored []error // see NotStored
}

type claim struct {
	uid  string
	term election.Term
}

type joinedGroup struct {
	*group.Group

	uid                       string
	stopProbe, stopLeaseTimer func()
	stopService               func(processEnds bool)
	carried                   atomic.Pointer[proxy.Stats] // nil without a service
}

// New starts an agent in the groups of a configuration. It replaces the lists in the
// configuration by those in force. If New fails, it closes the listener.
func New(ctx context.Context, c *config.Config, options Options) (*Agent, error) {
	if options.Listener == nil {
		listener, err := transport.Listen(ctx, c.Listen)
		if err != nil {
			return nil, fmt.Errorf("cannot listen for peers: %w", err)
		}
		options.Listener = listener
	}
	a := &Agent{
		options: options, self: c.Self, config: c, groups: map[string]*joinedGroup{}, claims: map[string]claim{},
		notServed: map[string]string{},
	}
	var err error
	for i, g := range c.Groups {
		if c.Groups[i], err = a.prepareFirst(g); err != nil {
			return nil, errors.Join(c.InGroup(g.Name, err), options.Listener.Close())
		}
	}
	if a.alarm, err = alarm.New(options.Clock); err != nil {
		return nil, errors.Join(err, options.Listener.Close())
	}
	if a.carriers, err = proxy.NewShared(proxy.UsualLimits()); err != nil {
		a.alarm.Close()
		return nil, errors.Join(err, options.Listener.Close())
	}
	a.transport = transport.New(transport.Config{
		Self: c.Self, Domain: c.Domain, Life: options.Life, Log: options.Log, Events: a, OnChange: a.Refresh,
		Listener: options.Listener, Certificates: options.Certificates, Authorize: a.authorize,
		Identity: options.Store.Identity(), Rate: options.Rate,
	})
	for _, g := range c.Groups {
		if err := a.join(ctx, g, false); err != nil {
			a.Close(ctx)
			return nil, err
		}
	}
	a.connect()
	return a, nil
}

// connect sets the members of all groups as the transport's peers.
func (a *Agent) connect() {
	a.connecting.Lock()
	defer a.connecting.Unlock()
	addresses, uids := peers(a.Config())
	a.transport.SetUIDs(uids)
	a.transport.SetPeers(addresses)
}

// peers returns the addresses of the members in all lists in force, and the UIDs of their pods. Those that were
// published last count, and several UIDs if they were published together. Groups in a file have no revision: there, the
// group that has changed last wins. A previous list counts only for members that are on no present one, because it may
// be older.
func peers(c *config.Config) (addresses map[string]string, uids map[string][]string) {
	addresses, uids = map[string]string{}, map[string][]string{}
	isPresent, published := map[string]bool{}, map[string]int64{}
	add := func(revision int64, m memberlist.Member) {
		if addresses[m.Name] == "" {
			addresses[m.Name] = m.Address
		}
		known := uids[m.Name]
		if m.UID != "" && !slices.Contains(known, m.UID) && (known == nil || published[m.Name] == revision) {
			uids[m.Name], published[m.Name] = append(known, m.UID), revision
		}
	}
	newestFirst := slices.SortedStableFunc(slices.Values(c.Groups), func(a, b config.Group) int {
		return cmp.Compare(b.Revision, a.Revision)
	})
	for _, g := range newestFirst {
		for _, m := range g.List.Members {
			isPresent[m.Name] = true
			add(g.Revision, m)
		}
	}
	for _, g := range newestFirst {
		if g.List.Previous == nil {
			continue
		}
		for _, m := range g.List.Previous.Members {
			if !isPresent[m.Name] {
				add(g.Revision, m)
			}
		}
	}
	delete(addresses, c.Self)
	return addresses, uids
}

// Config returns the configuration in force. The caller must not change it.
func (a *Agent) Config() *config.Config {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.config
}

// Names returns the names of the groups.
func (a *Agent) Names() []string {
	if a == nil {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Sorted(maps.Keys(a.groups))
}

// Find returns a group.
func (a *Agent) Find(name string) (*group.Group, bool) {
	g := a.joined(name)
	if g == nil {
		return nil, false
	}
	return g.Group, true
}

// running returns the groups in the order of their names.
func (a *Agent) running() []*joinedGroup {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.SortedFunc(maps.Values(a.groups), func(g, h *joinedGroup) int { return cmp.Compare(g.Name(), h.Name()) })
}

func (a *Agent) joined(name string) *joinedGroup {
	if a == nil {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.groups[name]
}

// authorize refuses a peer whose certificate is for none of the agent's groups. It may
// belong to a member of another group that has the name of a member of this one.
func (a *Agent) authorize(peer string, members map[string]string) error {
	for _, g := range a.Config().Groups {
		if members[g.Name] == peer {
			return nil
		}
	}
	return fmt.Errorf("the certificate of %q must be for a group of this agent", peer)
}

// ReceiveMessage implements transport.Events.
func (a *Agent) ReceiveMessage(from transport.Sender, message *wire.Message) {
	if g, ok := a.Find(message.Group); ok {
		g.ReceiveMessage(from, message)
	}
}

// PeerEnded implements transport.Events.
func (a *Agent) PeerEnded(peer string, life uint32) {
	for _, g := range a.running() {
		g.PeerEnded(peer, life)
	}
}

// PeerRefused implements transport.Events.
func (a *Agent) PeerRefused(peer string) {
	for _, g := range a.running() {
		g.PeerRefused(peer)
	}
}

// AwaitReplacement waits until no group needs the vote of this process: see group.AwaitReplacement.
func (a *Agent) AwaitReplacement(ctx context.Context) {
	var waiting sync.WaitGroup
	for _, g := range a.running() {
		waiting.Go(func() { g.AwaitReplacement(ctx) })
	}
	waiting.Wait()
}

// Close leaves all groups and closes the connections. If the agent is a coordinator, it
// first hands the office over, unless ctx ends.
func (a *Agent) Close(ctx context.Context) {
	if a.closed.Swap(true) {
		return
	}
	a.awaitChanges()
	a.mu.RLock()
	var leaving sync.WaitGroup
	for _, g := range a.groups { // The groups remain in the map: a handover needs their messages.
		leaving.Go(func() { g.leave(ctx, control.EndStopped) })
	}
	a.mu.RUnlock()
	leaving.Wait()
	a.retire()
	a.carriers.Close()
	a.alarm.Close()
	a.transport.Close()
}

// retire gives up the identity of the state directory after all groups have been left, if this was their only member,
// and no process relies on a grant of it. Then the operator needs to wait for nothing until its successor votes. The
// members of larger groups keep their identities, so that they vote again after a reboot although no operator runs.
// Groups in files have none.
func (a *Agent) retire() {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.options.OnReport == nil || len(a.groups) == 0 {
		return
	}
	for _, g := range a.groups {
		if !g.CanRetire() {
			return
		}
	}
	if err := a.options.Store.GiveUpIdentity(); err != nil {
		a.options.Log.Warn("the operator will wait for a lease until another pod can replace this one", "error", err)
		return
	}
	for _, g := range a.groups {
		g.ReportRetired()
	}
}

// waitMax bounds how long the end of an agent waits for what may wait for a disk that doesn't respond.
const waitMax = time.Second

// awaitChanges waits until no group is being changed. A change may wait for the disk. Then the handover must not wait,
// too: the process ends without the change.
func (a *Agent) awaitChanges() {
	waitBriefly(a.options.Log, "a change of groups", func() {
		a.applying.Lock()
		defer a.applying.Unlock()
	})
}

// waitBriefly waits until wait returns, but no longer than waitMax.
func waitBriefly(log *slog.Logger, what string, wait func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait()
	}()
	select {
	case <-ended:
	case <-time.After(waitMax):
		log.Warn("gave up waiting; the disk may be blocked", "for", what)
	}
}

// NotStored returns why New could not store the configuration of some groups, nil if it could.
// The agent started with the lists and leases that it had stored before.
func (a *Agent) NotStored() error { return errors.Join(a.notStored...) }

// Temporary reports whether settings that could not be applied may be applied later without a change, because the error
// is one of the operating system: a full disk, for example.
func Temporary(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno)
}

// OpenMemory opens the memory of the agent that has locked a state directory. The agent works
// without one, too. An error means that an earlier memory can't be invalidated.
func OpenMemory(stateDir string, log *slog.Logger) (*memory.Dir, error) {
	d, without, err := memory.Open(stateDir)
	if without != nil {
		log.Warn("cannot remember grants: after a restart, this agent waits for the lease", "error", without)
	}
	return d, err
}
