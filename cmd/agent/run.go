package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// addRun makes the root command run an agent.
func addRun(root *cobra.Command) {
	var path, traceFolder string
	var verbose bool
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		stderr := cmd.ErrOrStderr()
		return runAgent(cmd.Context(), path, traceFolder, logger(stderr, level(verbose)), droppedLines(stderr))
	}
	addConfig(root, &path)
	root.Flags().BoolVar(&verbose, "verbose", false, "also log connections and the messages of elections")
	root.Flags().StringVar(&traceFolder, "trace", "",
		"a directory for traces of the elections, from which a developer can repeat them")
}

// untilSignal returns a context that ends with the first signal. The second signal ends
// the process immediately. The end of the reader of stderr doesn't end the process: for that,
// Go programs get a signal even if they check the error of the write.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

func runAgent(ctx context.Context, path, traceFolder string, log *slog.Logger, droppedLogLines func() uint64) error {
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
	remembered, err := agent.OpenMemory(c.State, log)
	if err != nil {
		return err
	}
	defer remembered.Close()
	files, err := openCertificates(c, log)
	if err != nil {
		return err
	}
	local, err := agent.ListenLocalAPI(ctx, c.API)
	if err != nil {
		return err
	}
	registry := metrics.New()
	registry.Version, registry.DroppedLogLines = version, droppedLogLines
	options := agent.Options{
		Clock: clock.New(), Life: agent.NewLife(), Store: store, Memory: remembered,
		Metrics: registry, TraceFolder: traceFolder, Log: log,
	}
	if files != nil {
		options.Certificates = files
		options.Problems = func() (own, others []string) { return certificateProblems(files) }
		registry.CertificateNotAfter = files.NotAfter
	}
	a, err := agent.New(ctx, c, options)
	if err != nil {
		return errors.Join(err, local.Close())
	}
	log.Info("started agent", "self", c.Self, "listen", c.Listen, "api", local.Addr().String())
	process := newProcess(a, local, file, registry.Handler(a), log)
	if files != nil {
		process.Prepare = func(ctx context.Context) { reloadCertificates(ctx, files, log) }
	}
	return process.Run(ctx)
}

// newProcess returns the process of a running agent, which reloads its file.
func newProcess(a *agent.Agent, local net.Listener, file configFile, metrics http.Handler,
	log *slog.Logger,
) *agent.Process {
	return &agent.Process{
		LocalAPI: local, AllowUser: agent.AllowUsers(a.Config().APIUIDs), Groups: a.Local(), Metrics: metrics, Log: log,
		Start: func(context.Context) (*agent.Started, error) {
			return &agent.Started{Agent: a, Tasks: []func(context.Context){
				func(ctx context.Context) { file.watch(ctx, a, log) },
			}}, nil
		},
	}
}

// openCertificates opens the certificate files. It returns nil if the configuration is insecure.
func openCertificates(c *config.Config, log *slog.Logger) (*identity.Files, error) {
	if c.TLS.Insecure {
		log.Warn("connecting to peers without TLS: every process on this machine can take part in the elections")
		return nil, nil //nolint:nilnil // The configuration has no certificates.
	}
	return identity.Open(c.IdentityPaths(), func(err error) {
		log.Error("cannot reload certificate; continuing with the previous one", "error", err)
	})
}

// certificateInterval is the time between checks for replaced certificate files. Each handshake checks for them, too.
const certificateInterval = 5 * time.Second

// reloadCertificates loads replaced certificate files until ctx ends, and logs once that a certificate expires. The
// goroutines of groups report the expiry, and must not wait for a disk.
func reloadCertificates(ctx context.Context, files *identity.Files, log *slog.Logger) {
	ticker := time.NewTicker(certificateInterval)
	defer ticker.Stop()
	for logged := ""; ; {
		if problem, _ := expiryProblem(files); problem != "" && problem != logged {
			log.Warn(problem)
			logged = problem
		}
		select {
		case <-ticker.C:
			files.Reload()
		case <-ctx.Done():
			return
		}
	}
}

// certificateProblems returns why this agent isn't ready, because peers refuse its connections or it refuses changed
// files, and that its certificate expires soon.
func certificateProblems(files *identity.Files) (own, others []string) {
	if err := files.Refused(); err != nil {
		own = append(own, err.Error())
	}
	switch problem, expired := expiryProblem(files); {
	case expired:
		own = append(own, problem)
	case problem != "":
		others = append(others, problem)
	}
	return own, others
}

// expiryProblem returns that the certificate has expired, or will soon: nothing but a user replaces it.
func expiryProblem(files *identity.Files) (problem string, expired bool) {
	if problem, expired = files.Expiry(time.Now()); problem != "" {
		problem += ": replace it"
	}
	return problem, expired
}
