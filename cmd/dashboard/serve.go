package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientconfig "sigs.k8s.io/controller-runtime/pkg/client/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/groupwatch"
	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
	"github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/dashboard/multiuser"
	"github.com/conclave-dev/conclave/internal/net/httpserver"
)

// serve serves the dashboard until the context ends.
func serve(ctx context.Context, o options, log *slog.Logger) error {
	bridge := logr.FromSlogHandler(log.Handler())
	ctrllog.SetLogger(bridge)
	klog.SetLogger(bridge)
	connected, err := connect()
	if err != nil {
		return err
	}
	var tlsConfig *tls.Config
	if folder := o.certificates; folder != "" {
		certificates, err := certwatcher.New(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
		if err != nil {
			return fmt.Errorf("cannot read the certificate: %w", err)
		}
		go certificates.Start(ctx) //nolint:errcheck // it also reads the files every few seconds
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificates.GetCertificate}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.address)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	store := dashboard.NewStore()
	go store.Watch(ctx, groupwatch.Watcher{Client: connected, RetryInterval: time.Second}, describe(log))
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" { // It is that of the operator, too.
		go store.WatchOperator(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
			return operatorlease.Read(ctx, connected, namespace)
		})
	}
	users := multiuser.New(multiuser.Options{Store: store, Client: connected, Audiences: o.audiences, Hosts: o.hosts, Grafana: o.grafana, Log: log})
	stopped := context.AfterFunc(ctx, users.Close)
	defer stopped()
	server := &httpserver.Server{
		Name: "the dashboard", Listener: listener, Handler: users.Handler(), TLS: tlsConfig, Limits: multiuser.Limits, Log: log,
	}
	log.Info("serving dashboard", "version", version, "address", listener.Addr().String(), "hosts", o.hosts, "audiences", o.audiences)
	return server.Start(ctx)
}

func connect() (client.WithWatch, error) {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{authenticationv1.AddToScheme, authorizationv1.AddToScheme, coordinationv1.AddToScheme, v1.AddToScheme} {
		if err := add(types); err != nil {
			return nil, err
		}
	}
	config, err := clientconfig.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot load the kubeconfig: %w", err)
	}
	config.QPS = -1 // Package multiuser limits the rate of requests.
	connected, err := client.NewWithWatch(config, client.Options{Scheme: types})
	if err != nil {
		return nil, fmt.Errorf("cannot create a client: %w", err)
	}
	return connected, nil
}

// describe logs each new error. Users learn only that the API server doesn't respond.
func describe(log *slog.Logger) func(error) error {
	last := ""
	return func(err error) error {
		if text := err.Error(); text != last {
			last = text
			log.Warn("cannot watch groups; retrying", "error", err)
		}
		return errors.New("it does not respond")
	}
}
