package pod

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// groupManager accepts documents from the operator. It has a worker for each group that the pod is in, so that a slow
// group doesn't delay the others.
type groupManager struct {
	self string
	// anyGroup: the operator may add groups, as it does for a witness.
	anyGroup bool
	probe    *config.Probe
	store    *state.Store
	reports  *reportHub
	log      *slog.Logger

	mu      sync.Mutex
	workers map[string]*groupWorker
	// expected are the groups whose documents the agent waits for.
	expected []string
	// start starts a worker. It is nil while run isn't running.
	start func(*groupWorker)
	agent *agent.Agent
}

// newGroupManager creates the workers of the pod's groups with their stored documents.
func newGroupManager(s *Settings, store *state.Store, reports *reportHub, log *slog.Logger) *groupManager {
	m := &groupManager{
		self: s.Pod, anyGroup: s.Witness, probe: s.Probe, store: store, reports: reports, log: log,
		workers: map[string]*groupWorker{},
	}
	m.expect(s.Groups)
	return m
}

func (m *groupManager) expect(groups []string) {
	m.add(groups)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expected = slices.Clone(groups)
}

func (m *groupManager) add(groups []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, group := range groups {
		if m.workers[group] != nil || len(m.workers) == maxWitnessGroups {
			continue
		}
		w := newGroupWorker(m, group)
		m.workers[group] = w
		if m.start != nil {
			m.start(w)
		}
	}
}

// run runs the workers until ctx ends.
func (m *groupManager) run(ctx context.Context, a *agent.Agent) {
	var workers sync.WaitGroup
	m.mu.Lock()
	m.agent = a
	m.start = func(w *groupWorker) { workers.Go(func() { w.run(ctx, a) }) }
	for _, w := range m.workers {
		m.start(w)
	}
	m.mu.Unlock()
	m.publishProblems()
	<-ctx.Done()
	m.mu.Lock()
	m.start = nil
	m.mu.Unlock()
	workers.Wait()
}

// ApplyDocument checks a document of the operator, and waits until it is in force. If the operator stops waiting, it is
// applied nevertheless.
func (m *groupManager) ApplyDocument(ctx context.Context, group string, document []byte) error {
	const source = "the operator"
	if m.anyGroup && config.CheckGroupName(group) == nil {
		m.add([]string{group})
	}
	w, err := m.worker(group)
	if err != nil {
		return err
	}
	g, err := m.parse(source, document)
	if err == nil && g.Name != group {
		err = fmt.Errorf("it must be of group %s, got %s", group, g.Name)
	}
	if err == nil {
		err = checkRevision(g.Revision)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
	}
	return w.want(ctx, &target{source: source, uid: g.UID, revision: g.Revision, document: document, settings: g})
}

// LeaveGroup leaves a group, and waits until the agent has left it.
func (m *groupManager) LeaveGroup(ctx context.Context, group, uid string, revision int64) error {
	w, err := m.worker(group)
	if err != nil {
		return err
	}
	if err := checkRevision(revision); err != nil {
		return fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
	}
	return w.want(ctx, &target{uid: uid, revision: revision})
}

func (m *groupManager) parse(source string, document []byte) (*config.Group, error) {
	g, err := config.ParseDocument(source, document)
	if err == nil {
		g.Probe = m.probe
		if m.anyGroup {
			g.Service = nil // It has no application, and ports that all groups share.
		}
	}
	return g, err
}

// checkRevision refuses a revision that no operator can have created, unless the clock of this machine is behind. The
// agent would ignore all later documents if it applied such a document.
func checkRevision(revision int64) error {
	if revision > control.MaxRevision(time.Now()) {
		return fmt.Errorf("revision %d is more than a day ahead of this machine's clock; a revision is the operator's time "+
			"in milliseconds since 1970: set the clock, or let the operator create the document", revision)
	}
	return nil
}

func (m *groupManager) worker(group string) (*groupWorker, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[group]; w != nil {
		return w, nil
	}
	return nil, fmt.Errorf("%w: it names %s, not %s", api.ErrUnknownGroup, m.groupNames(), group)
}

// groupNames lists the groups of the workers. The caller holds the lock.
func (m *groupManager) groupNames() string {
	const most = 5
	names := slices.Sorted(maps.Keys(m.workers))
	if len(names) <= most {
		return fmt.Sprint(names)
	}
	return fmt.Sprintf("%v and %d more", names[:most], len(names)-most)
}

// publishProblems sets why the documents of groups aren't in force.
func (m *groupManager) publishProblems() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.agent == nil {
		return
	}
	var problems []string
	for _, w := range m.workers {
		w.mu.Lock()
		if w.problem != "" {
			problems = append(problems, w.problem)
		}
		w.mu.Unlock()
	}
	slices.Sort(problems)
	m.agent.SetProblems(problems...)
}

// isEmpty reports whether no group has a document.
func (m *groupManager) isEmpty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.workers {
		if !w.isEmpty() {
			return false
		}
	}
	return true
}

func (m *groupManager) groupsWithoutDocument() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(slices.Values(m.expected)) {
		if m.workers[name].isEmpty() {
			names = append(names, name)
		}
	}
	return names
}
