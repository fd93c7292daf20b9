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

// registrar decides which groups the agent takes part in, by the documents that it
// is given, from wherever they come. Each group is a desk of its own: one doesn't
// wait for the other.
type groupManager struct {
	self      string
	probe     *config.Probe
	documents documentStore
	lists     *state.Store
	reports   *reportHub
	log       *slog.Logger
	workers   map[string]*groupWorker

	mu sync.Mutex
	// problems are why what was given isn't taken over, by group and source.
	problems map[[2]string]string
	agent    *agent.Agent
}

// newGroupManager knows what is kept of the pod's groups.
func newGroupManager(s *Settings, store *state.Store, board *reportHub, log *slog.Logger) *groupManager {
	r := &groupManager{
		self: s.Pod, probe: s.Probe, documents: documentStore{s.StateDir}, lists: store, reports: board, log: log,
		workers: map[string]*groupWorker{}, problems: map[[2]string]string{},
	}
	for _, group := range s.Groups {
		r.workers[group] = newGroupWorker(r, group)
	}
	return r
}

// open has the agent take part in the groups, until ctx ends.
func (r *groupManager) start(ctx context.Context, a *agent.Agent) {
	r.mu.Lock()
	r.agent = a
	r.mu.Unlock()
	for _, d := range r.workers {
		d.tasks.Go(func() { d.run(ctx, a) })
	}
	r.publishProblems()
}

// wait returns when nothing is taken over any more.
func (r *groupManager) wait() {
	for _, d := range r.workers {
		d.tasks.Wait()
	}
}

// offer gives a document to the desk of its group, and tells what becomes of it. A
// folder or a path says of which group it must be, unless that is "".
func (r *groupManager) acceptDocument(source, group string, document []byte) (<-chan error, error) {
	g, err := config.ParseDocument(source, document)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
	case group != "" && g.Name != group:
		return nil, fmt.Errorf("%w: it is of group %s, and not of %s", api.ErrInvalidDocument, g.Name, group)
	}
	if err := checkRevision(g.Revision); err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
	}
	d := r.workers[g.Name]
	if d == nil {
		return nil, fmt.Errorf("%w: it names %s, and not %s", api.ErrUnknownGroup, r.groupNames(), g.Name)
	}
	g.Probe = r.probe
	return d.enqueue(&task{source: source, group: g, document: document})
}

// plausible refuses a revision that no operator has made.
func checkRevision(revision int64) error {
	if revision <= control.MaxRevision(time.Now()) {
		return nil
	}
	return fmt.Errorf("revision %d is more than a day ahead of this machine's clock, which it should be close to in milliseconds since 1970: "+
		"set the clock, or have the operator write the document", revision)
}

// find is the desk of a group, which is one that the pod names.
func (r *groupManager) worker(group string) (*groupWorker, error) {
	if d := r.workers[group]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("%w: it names %s, and not %s", api.ErrUnknownGroup, r.groupNames(), group)
}

func (r *groupManager) groupNames() string {
	const most = 5
	names := slices.Sorted(maps.Keys(r.workers))
	if len(names) <= most {
		return fmt.Sprint(names)
	}
	return fmt.Sprintf("%v and %d more", names[:most], len(names)-most)
}

// note remembers what is wrong with what a source says of a group. It is told once.
func (r *groupManager) addProblem(source, group string, err error) {
	key, problem := [2]string{group, source}, fmt.Sprintf("group %s: %s", group, err)
	r.mu.Lock()
	known := r.problems[key] == problem
	r.problems[key] = problem
	r.mu.Unlock()
	if !known {
		r.log.Error("goes on as before, since a document was refused", "group", group, "from", source, "error", err)
		r.publishProblems()
	}
}

// settle forgets what was wrong with a group: something newer was taken over.
func (r *groupManager) clearProblems(group string) {
	r.mu.Lock()
	before := len(r.problems)
	maps.DeleteFunc(r.problems, func(key [2]string, _ string) bool { return key[0] == group })
	changed := before != len(r.problems)
	r.mu.Unlock()
	if changed {
		r.publishProblems()
	}
}

// notice has the agent know what is wrong.
func (r *groupManager) publishProblems() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agent != nil {
		r.agent.SetProblems(slices.Sorted(maps.Values(r.problems))...)
	}
}

// missing are the groups of which nothing is known.
func (r *groupManager) groupsWithoutDocument() []string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(r.workers)) {
		if r.workers[name].isEmpty() {
			missing = append(missing, name)
		}
	}
	return missing
}

// leaseOnAnyClock is longer than a lease on any clock.
func leaseOnAnyClock(lease time.Duration) time.Duration { return lease + lease/8 }
