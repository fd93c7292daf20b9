package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/controllers"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/operator/serve/enroll"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=conclave-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=conclave-system,resources=leases,resourceNames=conclave-manager,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=conclave-system,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// The names of the objects in config/.
const (
	leaseName       = "conclave-manager"
	webhookService  = "conclave-webhook"
	identityService = "conclave-identity"
	metricsService  = "conclave-metrics"
	webhookConfig   = "conclave"
)

// manager has the options of this process, and what its components share.
type manager struct {
	options
	log               *slog.Logger
	config            *rest.Config
	scheme            *runtime.Scheme
	live              client.Client // reads from the API server, not from a cache
	groups            *groupReader
	caStore           *authority.Store
	serverCertificate *authority.ServerCertificate
	probes            *probes
	metrics           *metricSet
	refusals          *enroll.Refusals
	// reportedCA has the groups whose status reports that the CA is missing.
	reportedCA map[types.UID]bool
}

// manage runs the manager until the context is done.
func manage(ctx context.Context, o options, log *slog.Logger) error {
	bridge := logr.FromSlogHandler(log.Handler())
	ctrl.SetLogger(bridge)
	klog.SetLogger(bridge)
	all, err := newMetrics()
	if err != nil {
		return err
	}
	m := &manager{
		options: o, log: log, scheme: runtime.NewScheme(), probes: &probes{}, metrics: all, refusals: enroll.NewRefusals(),
	}
	if err := m.connect(); err != nil {
		return err
	}
	if err := m.serveProbes(ctx); err != nil {
		return err
	}
	if err := m.openCAStore(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	mgr, err := m.newManager()
	if err != nil {
		return err
	}
	for _, add := range []func(context.Context,
		ctrl.Manager) error{m.addCAStore, m.addWebhook, m.addIdentity, m.addMetrics, m.addControllers} {
		if err := add(ctx, mgr); err != nil {
			return err
		}
	}
	log.Info("starting manager", "version", version, "namespace", o.namespace, "agentImage", o.agentImage)
	return mgr.Start(ctx)
}

func (m *manager) connect() error {
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(m.scheme); err != nil {
			return err
		}
	}
	var err error
	if m.config, err = ctrl.GetConfig(); err != nil {
		return fmt.Errorf("load the kubeconfig: %w", err)
	}
	if m.live, err = client.New(m.config, client.Options{Scheme: m.scheme}); err != nil {
		return fmt.Errorf("create a client: %w", err)
	}
	m.groups = newGroupReader(m.live)
	return nil
}

// openCAStore reads the CA from its Secret. It retries until the API server responds.
func (m *manager) openCAStore(ctx context.Context) error {
	for {
		store, err := authority.Open(ctx, m.live, m.namespace, m.log, m.mayCreateCA)
		if err == nil {
			m.caStore = store
			break
		}
		m.log.Warn("cannot read CA Secret; retrying", "error", err)
		if pause(ctx, 2*time.Second) != nil {
			return nil //nolint:nilerr // the context has ended
		}
	}
	var hosts []string
	for _, service := range []string{webhookService, identityService, metricsService} {
		host := service + "." + m.namespace + ".svc"
		hosts = append(hosts, host, host+".cluster.local")
	}
	var err error
	if m.serverCertificate, err = m.caStore.NewServerCertificate(hosts...); err != nil {
		return err
	}
	m.metrics.expiry.Add("ca", m.caStore.NotAfter)
	m.metrics.expiry.Add("identity", m.serverCertificate.NotAfter)
	return nil
}

// pause returns an error if the context ends before the time has passed.
func pause(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *manager) newManager() (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(m.config, m.managerOptions())
	if err != nil {
		return nil, fmt.Errorf("create the manager: %w", err)
	}
	return mgr, nil
}

func (m *manager) managerOptions() ctrl.Options {
	return ctrl.Options{
		Scheme:                  m.scheme,
		GracefulShutdownTimeout: new(15 * time.Second),
		HealthProbeBindAddress:  "0", // see probes
		Cache:                   m.cacheOptions(),
		Metrics:                 metricsserver.Options{BindAddress: "0"}, // see addMetrics
	}
}

// cacheOptions returns those of the controllers and, of all webhook configurations, only
// Conclave's: the manager isn't permitted to read others.
func (m *manager) cacheOptions() ctrlcache.Options {
	o := cache.Options()
	o.ByObject[&admissionregistrationv1.MutatingWebhookConfiguration{}] = ctrlcache.ByObject{
		Field: fields.OneTermEqualSelector(metav1.ObjectNameField, webhookConfig),
	}
	return o
}

// addCAStore runs the CA store. It publishes the CA bundle in the webhook configuration.
func (m *manager) addCAStore(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.Add(m.caStore); err != nil {
		return err
	}
	if err := mgr.Add(
		&authority.MetricsPublisher{Store: m.caStore, Client: m.live, Namespace: m.namespace, Log: m.log}); err != nil {
		return err
	}
	written, err := webhookWritten(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	publisher := &authority.WebhookPublisher{
		Store: m.caStore, Client: m.live, Name: webhookConfig, Written: written, Log: m.log,
	}
	m.probes.require(func(*http.Request) error { return publisher.Ready() })
	return mgr.Add(publisher)
}

// webhookWritten returns a channel that signals each write of the webhook configuration.
// A watch costs no requests while nothing is written.
func webhookWritten(ctx context.Context, all ctrlcache.Cache) (<-chan struct{}, error) {
	informer, err := all.GetInformer(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{})
	if err != nil {
		return nil, fmt.Errorf("watch the webhook configuration: %w", err)
	}
	written := make(chan struct{}, 1)
	signal := func() {
		select {
		case written <- struct{}{}:
		default: // A signal is pending.
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal() },
		UpdateFunc: func(_, _ any) { signal() },
	})
	return written, err
}

// injectSettings returns the settings of an agent that is injected now.
func (m *manager) injectSettings(ctx context.Context) (inject.Settings, error) {
	bundle, err := m.caStore.Bundle(ctx)
	return inject.Settings{
		AgentImage:  m.agentImage,
		IdentityURL: "https://" + identityService + "." + m.namespace + ".svc",
		CABundle:    string(bundle),
		Options:     m.agent,
		PullSecrets: m.agentPullSecrets,
	}, err
}

// addControllers adds the controllers, and the election of the replica that leads.
func (m *manager) addControllers(_ context.Context, mgr ctrl.Manager) error {
	operator, err := m.caStore.NewOperatorCertificate()
	if err != nil {
		return fmt.Errorf("create the operator's certificate: %w", err)
	}
	m.metrics.expiry.Add("operator", operator.NotAfter)
	leadership := controllers.NewLeadership()
	lock, err := m.newLeaderLock()
	if err != nil {
		return err
	}
	lock.LockConfig.EventRecorder = mgr.GetEventRecorderFor(lock.Identity()) //nolint:staticcheck // client-go needs it
	if err := mgr.Add(&elector{lock: lock, set: leadership.Set, log: m.log}); err != nil {
		return err
	}
	//nolint:contextcheck // Setup only adds what the manager starts
	return controllers.Setup(mgr, controllers.Options{
		Credentials: operator, Namespace: m.namespace, Refused: m.refusals.Of, MaxGroups: m.maxGroups,
		Leadership: leadership,
	})
}
