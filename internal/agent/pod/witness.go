package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const (
	// maxWitnessGroups bounds the groups of a namespace for which a witness has had documents. The operator gives it fewer
	// at a time, but what was granted in former groups remains as long as the witness is in any group of the namespace.
	maxWitnessGroups = 1000
	// witnessRate is the number of messages of a namespace in a second: five times those of 100 groups by default. It
	// bounds the processor time that a namespace takes from others.
	witnessRate = 5000
	// operatorConnections are those of two operators with 1000 namespaces, each with a stream and a request.
	operatorConnections = 4000
)

// witness is a process with one agent for each namespace. They share the certificate and the ports, and nothing else:
// what the members of a namespace send reaches its agent only. See docs/adr/0064-managed-witnesses.md.
type witness struct {
	*runtime // in no group: it has the certificate, and says whether the process is ready

	files  *identity.Files
	front  *transport.Front
	folder string // has a state directory for each namespace

	mu      sync.Mutex
	tenants map[string]*tenant
	ended   *sync.Cond // one of them has ended, and its state directory is removed
	closed  bool
}

// tenant is the part of a witness for one namespace.
type tenant struct {
	*runtime

	handler http.Handler
	// end ends the agent. Each call returns when that has happened.
	end func()

	// uses counts the requests of the operator, among them streams of reports. ending: there are no more. The lock of the
	// witness guards both.
	uses   int
	ending bool
}

// startWitness starts the agents of the namespaces whose documents are stored. The operator adds others.
func (r *runtime) startWitness(ctx context.Context, files *identity.Files,
	operator net.Listener,
) (*agent.Started, error) {
	peers, err := transport.Listen(ctx, r.settings.Peers)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot listen for peers: %w", err), operator.Close())
	}
	w := &witness{
		runtime: r, files: files, front: &transport.Front{Listener: peers, Certificates: files, Log: r.log},
		folder: filepath.Join(r.settings.StateDir, "namespaces"), tenants: map[string]*tenant{},
	}
	w.ended = sync.NewCond(&w.mu)
	r.witness.Store(w)
	stored, _ := os.ReadDir(w.folder) // The operator's connections start what this doesn't.
	for _, namespace := range stored {
		if _, done, err := w.use(namespace.Name()); err == nil { //nolint:contextcheck // It lasts longer than the start.
			done()
		}
	}
	process := api.NewForOperator(operatorAPI{localAPI{r}, r.groups, r.reports}, r.metrics.Handler(r))
	return &agent.Started{
		Agent: w,
		Tasks: []func(context.Context){w.front.Serve, r.renewer.run},
		ServeOperator: func(ctx context.Context) error {
			return api.ServeOperator(ctx, operator, operatorConnections, files.PublicServer(),
				api.ForNamespaces(process, w.use), r.log)
		},
	}, nil
}

// use returns the API of a namespace for the operator, and starts its agent if there is none. Call done after the use.
func (w *witness) use(namespace string) (handler http.Handler, done func(), err error) {
	if err := config.CheckGroupName(namespace); err != nil {
		return nil, nil, fmt.Errorf("namespace %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := w.tenants[namespace]; t != nil && t.ending; t = w.tenants[namespace] {
		w.ended.Wait()
	}
	if w.closed {
		return nil, nil, errors.New("the witness is shutting down")
	}
	t := w.tenants[namespace]
	if t == nil {
		if t, err = w.start(namespace); err != nil {
			w.log.Error("cannot start the agent of a namespace", "namespace", namespace, "error", err)
			return nil, nil, err
		}
		w.tenants[namespace] = t
	}
	t.uses++
	return t.handler, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if t.uses--; t.uses == 0 {
			time.AfterFunc(w.settings.TenantGrace, func() { w.endUnused(namespace, t) })
		}
	}, nil
}

// endUnused ends the agent of a namespace that has no group, and removes its state directory. The grace has been longer
// than any lease, so no grant is forgotten that counts. The next agent has another identity: it is another voter. Other
// namespaces don't wait for the end, which may wait for a disk.
func (w *witness) endUnused(namespace string, t *tenant) {
	w.mu.Lock()
	unused := !w.closed && !t.ending && t.uses == 0 && t.groups.isEmpty()
	t.ending = t.ending || unused
	w.mu.Unlock()
	if !unused {
		return
	}
	t.end()
	if err := os.RemoveAll(t.settings.StateDir); err != nil {
		w.log.Error("cannot remove the state of a namespace", "namespace", namespace, "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tenants, namespace)
	w.ended.Broadcast()
}

// start starts the agent of a namespace, in the groups whose documents are stored.
func (w *witness) start(namespace string) (*tenant, error) {
	s := *w.settings
	s.Namespace, s.StateDir = namespace, filepath.Join(w.folder, namespace)
	r, err := newRuntime(s, w.log.With("namespace", namespace))
	if err != nil {
		return nil, err
	}
	r.renewer = w.renewer
	t := &tenant{runtime: r}
	ctx, stop := context.WithCancel(context.Background())
	a, err := t.startAgent(ctx, w.files, w.front, rate.NewLimiter(witnessRate, witnessRate/10))
	if err != nil {
		stop()
		t.close()
		return nil, err
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { t.groups.run(ctx, a) })
	t.end = sync.OnceFunc(func() {
		stop()
		tasks.Wait()
		a.Close(context.Background())
		t.close()
	})
	t.handler = api.NewForOperator(operatorAPI{localAPI{t.runtime}, t.groups, t.reports}, http.NotFoundHandler())
	return t, nil
}

// refreshTenants lets all agents handle a changed certificate.
func (w *witness) refreshTenants() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tenants {
		t.refresh()
	}
}

// AwaitReplacement returns at once: a witness is no member of a list of two.
func (w *witness) AwaitReplacement(context.Context) {}

// Close ends the agents of all namespaces.
func (w *witness) Close(context.Context) {
	w.mu.Lock()
	w.closed = true
	tenants := slices.Collect(maps.Values(w.tenants))
	w.mu.Unlock()
	var ending sync.WaitGroup
	for _, t := range tenants {
		ending.Go(t.end)
	}
	ending.Wait()
}
