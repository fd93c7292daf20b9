// Package pod is the agent in a pod of Kubernetes: what it takes part in, an
// operator says, and who it is, the operator's identity service.
//
// It needs neither of them to elect. What they have said last is kept, and counts
// until they say otherwise.
package pod

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// pod is one life of an agent.
type runtime struct {
	settings *Settings
	life     uint32
	store    *state.Store
	reports  *reportHub
	groups   *groupManager
	renewer  *certificateRenewer
	metrics  *metrics.Registry
	log      *slog.Logger

	// agent is nil before there is a certificate.
	agent atomic.Pointer[agent.Agent]
}

// garbage is how much of it there may be, in percent of what is in use: the kernel
// takes a large process apart more slowly, and peers wait for that.
const gcPercent = 50

// Run is an agent from its start to the end of ctx. The application is answered
// from the first moment on.
func Run(ctx context.Context, s Settings, log *slog.Logger) error {
	debug.SetGCPercent(gcPercent)
	store, err := state.Open(s.StateDir)
	if err != nil {
		return err
	}
	defer store.Close()
	credentials, err := openCredentials(&s)
	if err != nil {
		return err
	}
	p := &runtime{settings: &s, life: 1 + rand.Uint32N(1<<32-1), store: store, metrics: metrics.New(), log: log}
	p.reports = newReportHub(control.Agent{Pod: s.Pod, Life: p.life, Build: s.Build, Groups: s.Groups})
	p.groups = newGroupManager(&s, store, p.reports, log)
	p.renewer = newCertificateRenewer(&s, credentials, p.acceptEnrolledDocument, log)
	p.metrics.CertificateNotAfter = p.renewer.notAfter
	local, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.API)
	if err != nil {
		return fmt.Errorf("open the local API: %w", err)
	}
	mounts := &mountedFiles{
		dir: s.MountDir, groups: s.Groups, manager: p.groups, credentials: credentials, onChange: p.renewer.retryNow.send, log: log,
		checksums: map[string][sha256.Size]byte{},
	}
	mounts.read()
	return p.run(ctx, local, mounts)
}

// run answers applications, and takes part as soon as there is a certificate. The
// local API ends last: an application must hear that it has to stop.
func (p *runtime) run(ctx context.Context, local net.Listener, mounts *mountedFiles) error {
	answering, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- api.Serve(answering, local, api.New(localAPI{p}, p.metrics.Handler(p))) }()

	taking, enough := context.WithCancel(ctx)
	defer enough()
	var watching sync.WaitGroup
	watching.Go(func() { mounts.watch(taking) })
	ended := make(chan error, 1)
	go func() { ended <- p.participate(taking) }()
	var err error
	select {
	case err = <-failed:
		enough()
		err = errors.Join(err, <-ended)
	case err = <-ended:
		enough()
		stop()
		err = errors.Join(err, <-failed)
	}
	watching.Wait()
	return err
}

// participate takes part until ctx ends.
func (p *runtime) participate(ctx context.Context) error {
	p.log.Info("begins", "pod", p.settings.Pod, "namespace", p.settings.Namespace, "api", p.settings.API)
	files, err := p.renewer.obtain(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return err
	}
	operator, err := transport.Listen(ctx, p.settings.Operator)
	if err != nil {
		return fmt.Errorf("await the operator: %w", err)
	}
	a, err := p.startAgent(ctx, files)
	if err != nil {
		return errors.Join(err, operator.Close())
	}
	return p.serveOperator(ctx, a, operator, files)
}

// start makes the agent, in no group yet.
func (p *runtime) startAgent(ctx context.Context, files *identity.Files) (*agent.Agent, error) {
	s := p.settings
	listener, err := transport.Listen(ctx, s.Peers)
	if err != nil {
		return nil, fmt.Errorf("await peers: %w", err)
	}
	c := &config.Config{Self: s.Pod, Domain: s.Namespace, API: s.API, Listen: s.Peers, State: s.StateDir}
	a, err := agent.New(ctx, c, agent.Options{
		Clock: clock.New(time.Now()), Life: p.life, Listener: listener, Store: p.store,
		Security: transport.Certificates{Files: files, Domain: s.Namespace}, Problems: p.renewer.Problems,
		Metrics: func(of string) group.Metrics { return p.metrics.ForGroup(of) }, OnReport: p.reports.publish, Log: p.log,
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	p.agent.Store(a)
	p.renewer.onProblemsChanged(a.Refresh)
	p.log.Info("takes part", "self", s.Pod, "listen", listener.Addr().String())
	return a, nil
}

// obey does as the operator says, until ctx ends. Then it leaves: the operator hears
// of that.
func (p *runtime) serveOperator(ctx context.Context, a *agent.Agent, listener net.Listener, files *identity.Files) error {
	answering, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 1)
	go func() {
		failed <- api.ServeOperator(answering, listener, files.PublicServer(), api.NewForOperator(operatorAPI{p, a}, p.metrics.Handler(p)), p.log)
	}()
	working, enough := context.WithCancel(ctx)
	defer enough()
	p.groups.start(working, a)
	var caring sync.WaitGroup
	caring.Go(func() { p.renewer.run(working) })
	caring.Go(func() { p.readmitAfterOperatorAbsence(working, a) })
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	p.log.Info("leaves")
	enough()
	caring.Wait()
	p.groups.wait() // It doesn't join a group any more.
	a.Close(context.WithoutCancel(ctx))
	stop()
	if err == nil {
		err = <-failed
	}
	return err
}

// enrolled takes a document that came with the certificate.
func (p *runtime) acceptEnrolledDocument(document string) {
	const source = "the identity service"
	if _, err := p.groups.acceptDocument(source, "", []byte(document)); err != nil && !errors.Is(err, api.ErrOutdated) {
		p.log.Error("a document was refused", "from", source, "error", err)
	}
}
