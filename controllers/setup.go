// Package controllers is the operator's part that reads and writes: it gathers
// what there is, has internal/operator/membership and internal/operator/groupstatus decide, and applies that.
//
//	group, pods, nodes, objects          cached; own writes are waited for
//	what agents say (package streams)    in memory
//	  -> plan.Make     -> status.memberList, ConfigMap, documents to agents
//	  -> report.Make   -> status; then at once Service, EndpointSlice, role labels, Events, and what agents are told
//
// Nothing has to be remembered from one look at a group to the next, but since
// when something has been so (see memory): whatever a look left undone, because
// it failed or the operator died, the next one does. What is already so isn't
// written again. The next look comes when something has changed, or when the time
// has come that a decision waits for; never just because time has passed.
//
// Two operators at once do no harm: the status is updated from the version that
// was read, its schema refuses what goes back (docs/adr/0008), and the rest
// follows from the status.
package controllers

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	"github.com/conclave-dev/conclave/controllers/streams"
)

// CA are those that agents are to trust.
type CASource interface {
	// Bundle are their certificates, in PEM.
	Bundle(ctx context.Context) ([]byte, error)
	// Changed is closed when Bundle has become another. It is asked for before it.
	Changed() <-chan struct{}
}

// Options are what the controllers need besides a manager.
type Options struct {
	Credentials streams.Credentials
	CA CASource
	// Dial connects with agents; nil is the usual way.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Debounce is how long is waited for more news of a group after the first: 0 is
	// the usual time.
	Debounce time.Duration
	// Metrics is where they are registered; nil is where the manager serves them from.
	Metrics prometheus.Registerer
	// Workers is how many groups are looked at at once; 0 is the usual number.
	Workers int
	// SkipNameValidation allows several operators in one process.
	SkipNameValidation bool
}

const (
	// lull is a trade: an election reaches the operator as one report from each
	// agent within a few milliseconds, and a write for each of them would cost more
	// than to wait for the last.
	lull = 10 * time.Millisecond
	// workers write most of the time, and wait for the API server.
	workers = 16
	// retryFirst and retryLast bound the wait after a failure.
	retryFirst = 20 * time.Millisecond
	retryLast  = 5 * time.Second
	// lookPatience bounds one look at a group. Only an API server that doesn't
	// answer is waited for.
	lookPatience = 30 * time.Second
)

// operator is what both controllers share.
type operator struct {
	options Options
	// client reads from the cache, and there sees what it has written.
	client client.Client
	// cache is the same without waiting, live the API server itself.
	cache, live client.Reader
	streams     *streams.Streams
	meters      *meters
	memories    memories
	log         logr.Logger
	instance    string
	queue       queue
}

// Setup adds the controllers to a manager whose cache was made with Cache.
func Setup(mgr ctrl.Manager, options Options) error {
	o, err := newOperator(mgr, options)
	if err != nil {
		return err
	}
	if err := index(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("index the cache: %w", err)
	}
	if err := mgr.Add(o.streams); err != nil {
		return fmt.Errorf("add the streams: %w", err)
	}
	if err := o.addGroups(mgr); err != nil {
		return fmt.Errorf("add the controller of groups: %w", err)
	}
	if err := o.addAgents(mgr); err != nil {
		return fmt.Errorf("add the controller of agents: %w", err)
	}
	return nil
}

func newOperator(mgr ctrl.Manager, options Options) (*operator, error) {
	if options.Debounce == 0 {
		options.Debounce = lull
	}
	if options.Workers == 0 {
		options.Workers = workers
	}
	// A client of its own: what the others write, Secrets for example, must not
	// begin to be watched just to see it come back.
	c, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache(), EnableReadYourWritesConsistency: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	instance, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	o := &operator{
		options: options, client: c, cache: mgr.GetCache(), live: mgr.GetAPIReader(),
		log: mgr.GetLogger().WithName("groups"), instance: instance,
	}
	o.streams = streams.New(streams.Options{Credentials: options.Credentials, Dial: options.Dial, Changed: o.news, Log: o.log})
	o.meters = newMeters(o.streams.Connected)
	if options.Metrics == nil {
		options.Metrics = metrics.Registry
	}
	if err := o.meters.register(options.Metrics); err != nil {
		return nil, err
	}
	return o, nil
}

// addGroups adds the controller that looks at groups.
func (o *operator) addGroups(mgr ctrl.Manager) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast)
	return ctrl.NewControllerManagedBy(mgr).
		Named("groups").
		For(&v1.ElectionGroup{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(o.ofPod), builder.WithPredicates(changed(samePod))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(o.ofNode), builder.WithPredicates(changed(sameNode))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(owned)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(owned)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(owned)).
		WatchesRawSource(source.Func(o.listen)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.options.Workers,
			RateLimiter:             limiter,
			ReconciliationTimeout:   lookPatience,
			SkipNameValidation:      &o.options.SkipNameValidation,
		}).
		Complete(reconcile.Func(o.look))
}

// addAgents adds the controller that has the agents of all pods be heard.
func (o *operator) addAgents(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("agents").
		For(&corev1.Pod{}, builder.WithPredicates(changed(samePod))).
		WithOptions(controller.Options{SkipNameValidation: &o.options.SkipNameValidation}).
		Complete(reconcile.Func(o.follow))
}
