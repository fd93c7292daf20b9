package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/conclave-dev/conclave/internal/net/httpserver"
	"github.com/conclave-dev/conclave/internal/operator/serve/enroll"
	"github.com/conclave-dev/conclave/internal/operator/serve/webhook"
)

// The limits of the ports. Together, they keep the manager far below its memory limit of
// 512 MiB; a connection with TLS occupies about 50 KiB.
var (
	// A pod has at most 1.5 MiB in etcd. The API server sends one request per connection
	// at a time, and few hosts run API servers.
	webhookLimits = httpserver.Limits{
		Connections: 512, ConnectionsPerHost: 256, Body: 4 << 20, Bodies: 24 << 20, Timeout: 10 * time.Second,
	}
	// Requests for metrics and probes have no body.
	readLimits = httpserver.Limits{Connections: 128, ConnectionsPerHost: 32, Body: 1 << 10, Bodies: 64 << 10, Timeout: 10 *
		time.Second}
)

type getCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// newServer listens on an address. The manager adds the server, and serves it.
func (m *manager) newServer(ctx context.Context, name, address string, limits httpserver.Limits,
	certificate getCertificate, handler http.Handler,
) (*httpserver.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	server := &httpserver.Server{Name: name, Listener: listener, Handler: handler, Limits: limits, Log: m.log}
	if certificate != nil {
		server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate}
	}
	return server, nil
}

func portAddress(port int) string { return net.JoinHostPort("", strconv.Itoa(port)) }

// addWebhook serves the webhook, with a certificate of the manager's own CA.
func (m *manager) addWebhook(ctx context.Context, mgr ctrl.Manager) error {
	m.metrics.expiry.Add("webhook", m.serverCertificate.NotAfter)
	mux := http.NewServeMux()
	for path, namespaceOptedIn := range map[string]bool{webhook.Path: false, webhook.NamespacePath: true} {
		injector := &webhook.Injector{
			Settings: m.injectSettings, Cached: cachedSpecs(mgr.GetCache()), Groups: m.groups.specs,
			NamespaceOptedIn: namespaceOptedIn, Log: m.log, Count: m.metrics.injections.Count,
		}
		handler, err := admission.StandaloneWebhook(&admission.Webhook{Handler: injector},
			admission.StandaloneOptions{MetricsPath: path})
		if err != nil {
			return fmt.Errorf("create the webhook: %w", err)
		}
		mux.Handle(path, handler)
	}
	server, err := m.newServer(ctx, "the webhook", portAddress(m.webhookPort), webhookLimits,
		m.serverCertificate.GetCertificate, mux)
	if err != nil {
		return err
	}
	m.probes.require(server.Check)
	return mgr.Add(server)
}

// addIdentity serves the identity service.
func (m *manager) addIdentity(ctx context.Context, mgr ctrl.Manager) error {
	service := &enroll.Service{
		Namespace: m.namespace, Client: m.live, Signer: m.caStore, Log: m.log, Refusals: m.refusals,
		Count: m.metrics.enrollments.Count,
	}
	server, err := m.newServer(ctx, "the identity service", portAddress(m.identityPort), enroll.Limits,
		m.serverCertificate.GetCertificate, service.Handler())
	if err != nil {
		return err
	}
	m.probes.require(server.Check)
	return mgr.Add(server)
}

// addMetrics serves the metrics to authorized clients.
func (m *manager) addMetrics(ctx context.Context, mgr ctrl.Manager) error {
	if m.metricsAddress == "0" {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics",
		&authorized{api: m.live, handler: promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}), log: m.log})
	server, err := m.newServer(ctx, "metrics", m.metricsAddress, readLimits, m.serverCertificate.GetCertificate, mux)
	if err != nil {
		return err
	}
	return mgr.Add(server)
}
