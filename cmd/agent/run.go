package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// addRun lets the root command run the agent.
func addRun(root *cobra.Command) {
	var path string
	var verbose bool
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		return runAgent(cmd.Context(), path, logger(cmd.ErrOrStderr(), verbose))
	}
	addConfig(root, &path)
	root.Flags().BoolVar(&verbose, "verbose", false, "log connections, too")
}

// untilSignal ends with the first signal. The second one ends the process, whatever
// it waits for.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// runAgent is an agent from its start to its end by a signal.
func runAgent(ctx context.Context, path string, log *slog.Logger) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	file := openConfigFile(path)
	c, err := load(path)
	if err != nil {
		return err
	}
	for _, warning := range c.Warnings() {
		log.Warn(warning)
	}
	store, err := state.Open(c.State)
	if err != nil {
		return err
	}
	defer store.Close()
	files, err := openCertificates(c, log)
	if err != nil {
		return err
	}
	local, err := listenLocally(ctx, c.API)
	if err != nil {
		return err
	}
	listener, err := transport.Listen(ctx, c.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("await peers: %w", err), local.Close())
	}
	registry := metrics.New()
	parts := agent.Options{
		Clock: clock.New(time.Now()), Life: 1 + rand.Uint32N(1<<32-1), Listener: listener,
		Store: store, Metrics: func(of string) group.Metrics { return registry.ForGroup(of) }, Log: log,
	}
	if files != nil {
		parts.Security, parts.Problems = transport.Certificates{Files: files, Domain: c.Domain}, expiryProblems(files)
		registry.CertificateNotAfter = files.NotAfter
	}
	a, err := agent.New(ctx, c, parts)
	if err != nil {
		return errors.Join(err, local.Close(), listener.Close())
	}
	log.Info("takes part", "self", c.Self, "listen", listener.Addr().String(), "api", local.Addr().String())
	return serve(ctx, a, local, file, registry.Handler(a), log)
}

// serve answers applications and takes over a changed file, until ctx ends.
// The API ends last: an application must hear that it has to stop.
func serve(
	ctx context.Context, a *agent.Agent, local net.Listener, file configFile, metrics http.Handler, log *slog.Logger,
) error {
	answering, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- api.Serve(answering, local, api.New(a.Local(), metrics)) }()

	taking, enough := context.WithCancel(ctx)
	defer enough()
	var watching sync.WaitGroup
	watching.Go(func() { file.watch(taking, a, log) })
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	log.Info("leaves")
	enough()
	watching.Wait() // It doesn't join a group any more.
	a.Close(context.WithoutCancel(ctx))
	stop()
	if err == nil {
		err = <-failed
	}
	return err
}

func listenLocally(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open the local API: %w", err)
	}
	return listener, nil
}

// certificates are nil if the config does without.
func openCertificates(c *config.Config, log *slog.Logger) (*identity.Files, error) {
	if c.TLS.Insecure {
		log.Warn("peers are connected without TLS: anyone on this machine can take part")
		return nil, nil //nolint:nilnil // No certificates are what the config asks for.
	}
	return identity.Open(c.IdentityPaths(), func(err error) {
		log.Error("goes on with the certificate that it had", "error", err)
	})
}

// expiry tells when peers turn this agent away.
func expiryProblems(files *identity.Files) func() []string {
	return func() []string {
		if until := files.NotAfter(); time.Now().After(until) {
			return []string{"the certificate has expired at " + until.UTC().Format(time.RFC3339) + ": put a new one in its place"}
		}
		return nil
	}
}

// logger writes what an operator should know.
func logger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: microseconds}))
}

// finely writes times to the microsecond: an election takes a thousand of them.
func microseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000000Z"))
	}
	return a
}
