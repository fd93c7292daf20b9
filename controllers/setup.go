// Package controllers reconciles ElectionGroups. It gathers the facts, lets package decide make a step, and applies the
// actions of that:
//
//	gather   group, pods, nodes, objects from the cache, reports of agents from memory (gather.go)
//	decide   decide.Step: what should exist, and what has to be done for that (reconcile.go)
//	apply    commands to agents; then the status, with the list; then the document to agents, and at once Service,
//	         EndpointSlice, role labels, Events (apply.go)
//
// A step may ask for more facts, which the cache lacks, or for finalizers that must precede a document. Then there is
// another step. What controllers itself decides is only how often it writes (limits.go), and what it repeats.
//
// The next reconcile starts when something has changed (triggers.go, mapping.go), or at the time that a step waits for;
// there is no periodic reconcile.
//
// All replicas of the operator run the controllers, but only the leader writes, unless it is late (decide/standby.go).
// Two operators that write at once do no harm. The status is updated from the version that was read, the schema rejects
// a status that goes back (docs/adr/0008), and the rest follows from the status.
package controllers

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/cache"
)

// Options are what the controllers need besides a manager.
type Options struct {
	Credentials agents.Credentials
	// Namespace is that of the operator, which has the witnesses.
	Namespace string
	// Dial connects to agents; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Refused returns why the agent of a host has no certificate: see agents.Options.
	Refused func(host string) string
	// Debounce is the wait between the first changed report on a group and its reconcile; 0 means the default.
	Debounce time.Duration
	// LeaderGrace is how late the leader may write the result of an election before a standby does; 0 means the default.
	LeaderGrace time.Duration
	// MaxGroups is how many groups of a namespace the operator serves; 0 means all.
	MaxGroups int
	// Leadership is whether this replica leads.
	Leadership *Leadership
	// Metrics is the registry for metrics; nil means that of controller-runtime.
	Metrics prometheus.Registerer
}

const (
	// defaultDebounce trades latency for writes. An election reaches the operator as one report from each agent within a
	// few milliseconds. Writing the status for each of them would cost more than waiting for the last.
	defaultDebounce = 10 * time.Millisecond
	// defaultLeaderGrace is much longer than a leader needs, even at dozens of elections a second.
	defaultLeaderGrace = 500 * time.Millisecond
	// workers is the number of concurrent reconciles. It is high because they wait for the API server most of the time.
	workers = 16
	// initialBackoff and maxBackoff bound the wait after a failed reconcile.
	initialBackoff = 20 * time.Millisecond
	maxBackoff     = 5 * time.Second
	// reconcileTimeout bounds a reconcile. Only an API server that doesn't respond takes that long.
	reconcileTimeout = 30 * time.Second
)

// Setup adds the controllers to a manager whose cache was created with cache.Options.
func Setup(mgr ctrl.Manager, options Options) error {
	r, err := newReconciler(mgr, options)
	if err != nil {
		return err
	}
	if err := cache.AddIndexes(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("index the cache: %w", err)
	}
	if err := mgr.Add(r.agents); err != nil {
		return fmt.Errorf("add the connections to the agents: %w", err)
	}
	if err := r.addGroupController(mgr); err != nil {
		return fmt.Errorf("add the group controller: %w", err)
	}
	if err := r.addAgentController(mgr); err != nil {
		return fmt.Errorf("add the agent controller: %w", err)
	}
	if err := r.addSelectionController(mgr); err != nil {
		return fmt.Errorf("add the selection controller: %w", err)
	}
	return nil
}

func newReconciler(mgr ctrl.Manager, options Options) (*Reconciler, error) {
	options.Debounce = cmp.Or(options.Debounce, defaultDebounce)
	options.LeaderGrace = cmp.Or(options.LeaderGrace, defaultLeaderGrace)
	// The manager's own client has no read-your-writes consistency. With it, the manager would watch every kind that its
	// other parts write, for example Secrets, only to see these writes in the cache.
	writer, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache(), EnableReadYourWritesConsistency: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("create a client: %w", err)
	}
	instance, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	r := &Reconciler{
		options: options, cached: mgr.GetCache(), live: mgr.GetAPIReader(), writer: writer,
		log: mgr.GetLogger().WithName("groups"), instance: instance, spread: newSpreader(),
	}
	r.agents = agents.New(agents.Options{
		Credentials: options.Credentials, Dial: options.Dial, Refused: options.Refused, Changed: r.onAgentChanged, Log: r.log,
	})
	r.metrics = newMetricSet(r.agents.Connected)
	if options.Metrics == nil {
		options.Metrics = metrics.Registry
	}
	if err := r.metrics.register(options.Metrics); err != nil {
		return nil, err
	}
	return r, nil
}

// addGroupController adds the controller that reconciles groups.
func (r *Reconciler) addGroupController(mgr ctrl.Manager) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](initialBackoff, maxBackoff)
	groups, err := ctrl.NewControllerManagedBy(mgr).
		Named("groups").
		For(&v1.ElectionGroup{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.groupsOfPod),
			builder.WithPredicates(changed(sameContent[corev1.Pod]))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.groupsOfNode),
			builder.WithPredicates(changed(sameContent[corev1.Node]))).
		WatchesRawSource(source.Func(r.startTriggers)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             limiter,
			NewQueue:                newQueue,
			ReconciliationTimeout:   reconcileTimeout,
		}).
		Build(r)
	if err != nil {
		return err
	}
	return r.services.setup(mgr, groups, r.log)
}

// addAgentController adds the controller that connects to the agents of all pods.
func (r *Reconciler) addAgentController(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("agents").
		For(&corev1.Pod{}, builder.WithPredicates(changed(sameContent[corev1.Pod]))).
		Complete(reconcile.Func(r.reconcileAgent))
}
