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
	self    string
	probe   *config.Probe
	store   *state.Store
	reports *reportHub
	log     *slog.Logger

	mu      sync.Mutex
	workers map[string]*groupWorker
	// expected are the groups whose documents the agent waits for.
	expected []string
	// start starts a worker. It is nil while run isn't running.
	start func(*groupWorker)
	// problems has the errors of documents by group and source.
	problems map[[2]string]string
	agent    *agent.Agent
}

// newGroupManager creates the workers of the pod's groups with their stored documents.
func newGroupManager(s *Settings, store *state.Store, reports *reportHub, log *slog.Logger) *groupManager {
	m := &groupManager{
		self: s.Pod, probe: s.Probe, store: store, reports: reports, log: log,
		workers: map[string]*groupWorker{}, problems: map[[2]string]string{},
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
		if m.workers[group] != nil {
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

// acceptDocument validates a document and enqueues it for the worker of its group. The
// channel returns the result of applying it.
func (m *groupManager) acceptDocument(group string, document []byte) (<-chan error, error) {
	const source = "the operator"
	g, err := config.ParseDocument(source, document)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
	case g.Name != group:
		return nil, fmt.Errorf("%w: it must be of group %s, got %s", api.ErrInvalidDocument, group, g.Name)
	}
	if err := checkRevision(g.Revision); err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
	}
	w, err := m.worker(g.Name)
	if err != nil {
		return nil, err
	}
	g.Probe = m.probe
	return w.enqueue(&task{source: source, group: g, document: document})
}

// aheadOfClock is the error of a revision that no operator can have created yet.
type aheadOfClock int64

func (revision aheadOfClock) Error() string {
	return fmt.Sprintf("revision %d is more than a day ahead of this machine's clock; a revision is the operator's time "+
		"in milliseconds since 1970: "+
		"set the clock, or let the operator create the document", int64(revision))
}

// checkRevision refuses a revision that no operator can have created, unless the clock of this machine is behind. The
// agent would ignore all later documents if it applied such a document.
func checkRevision(revision int64) error {
	if revision <= control.MaxRevision(time.Now()) {
		return nil
	}
	return aheadOfClock(revision)
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

// addProblem records the error of a document, and logs it if it is new for its group and source.
func (m *groupManager) addProblem(source, group string, err error) {
	key, problem := [2]string{group, source}, fmt.Sprintf("group %s: %s", group, err)
	m.mu.Lock()
	known := m.problems[key] == problem
	m.problems[key] = problem
	m.mu.Unlock()
	if !known {
		m.log.Error("refused document; continuing with the previous one", "group", group, "source", source, "error", err)
		m.publishProblems()
	}
}

// clearProblems removes the problems of a group, after a newer document was applied.
func (m *groupManager) clearProblems(group string) {
	m.mu.Lock()
	before := len(m.problems)
	maps.DeleteFunc(m.problems, func(key [2]string, _ string) bool { return key[0] == group })
	changed := before != len(m.problems)
	m.mu.Unlock()
	if changed {
		m.publishProblems()
	}
}

func (m *groupManager) publishProblems() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.agent != nil {
		m.agent.SetProblems(slices.Sorted(maps.Values(m.problems))...)
	}
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
