// Package pod runs the agent in a pod of Kubernetes. The operator publishes the settings
// of its groups as documents, and the operator's identity service issues its certificate.
//
// The agent elects without either of them: it stores the last documents and the last
// certificate, which remain in force until they are replaced.
package pod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/memory"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

type runtime struct {
	settings *Settings
	life     uint32
	store    *state.Store
	memory   *memory.Dir
	reports  *reportHub
	groups   *groupManager
	renewer  *certificateRenewer
	metrics  *metrics.Registry
	log      *slog.Logger

	// agent is nil before there is a certificate, and in the process of a witness, which has tenants.
	agent   atomic.Pointer[agent.Agent]
	witness atomic.Pointer[witness]
}

// Run runs an agent until ctx ends. The local API responds from the beginning, before the agent has a certificate.
func Run(ctx context.Context, s Settings, log *slog.Logger) error {
	r, err := newRuntime(s, log)
	if err != nil {
		return err
	}
	defer r.close()
	r.renewer = newCertificateRenewer(&s, r.onNames, r.refresh, log)
	r.metrics.Version, r.metrics.CertificateNotAfter, r.metrics.DroppedLogLines = s.Build,
		r.renewer.notAfter, s.DroppedLogLines
	local, err := agent.ListenLocalAPI(ctx, s.API)
	if err != nil {
		return err
	}
	mounted := &mountedFiles{
		dir: s.MountDir, groupsFile: s.GroupsFile, onGroups: r.onGroups, onChange: r.renewer.retryNow.send, log: log,
	}
	mounted.readGroups()
	process := &agent.Process{
		LocalAPI: local, AllowUser: s.allowUser(), Groups: localAPI{r}, Metrics: r.metrics.Handler(r),
		Prepare: mounted.watch, Start: r.start, Log: log,
	}
	return process.Run(ctx)
}

// newRuntime opens the state directory.
func newRuntime(s Settings, log *slog.Logger) (*runtime, error) {
	store, err := state.Open(s.StateDir)
	if err != nil {
		return nil, err
	}
	remembered, err := agent.OpenMemory(s.StateDir, log)
	if err == nil && s.Witness {
		s.Groups, err = store.Groups()
	}
	r := &runtime{settings: &s, life: agent.NewLife(), store: store, memory: remembered, metrics: metrics.New(), log: log}
	if err != nil {
		r.close()
		return nil, err
	}
	r.reports = newReportHub(control.Agent{
		Pod: s.Pod, Life: r.life, Build: s.Build, Groups: s.Groups,
		Identity: memberlist.FormatIdentity(uint64(store.Identity())),
	}, s.OperatorAbsence)
	r.groups = newGroupManager(&s, store, r.reports, log)
	return r, nil
}

func (r *runtime) close() {
	r.memory.Close()
	_ = r.store.Close() // All that counts has been synced.
}

func (r *runtime) onGroups(groups []string) {
	r.groups.expect(groups)
	r.renewer.want(groups)
}

func (r *runtime) refresh() {
	if a := r.agent.Load(); a != nil {
		a.Refresh()
	}
	if w := r.witness.Load(); w != nil {
		w.refreshTenants()
	}
}

// onNames is called with the names in a new certificate. If groups select the pod, they are
// those that the agent can join.
func (r *runtime) onNames(names identity.Names) {
	if r.settings.GroupsFile == "" {
		return
	}
	groups := make([]string, len(names))
	for i, name := range names {
		groups[i] = name.Group
	}
	r.groups.add(groups)
	r.reports.setGroups(groups)
}

func (r *runtime) start(ctx context.Context) (*agent.Started, error) {
	r.log.Info("starting agent", "pod", r.settings.Pod, "namespace", r.settings.Namespace, "api", r.settings.API)
	files, err := r.renewer.obtain(ctx)
	if err != nil {
		return nil, err
	}
	operator, err := transport.Listen(ctx, r.settings.Operator)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for the operator: %w", err)
	}
	if r.settings.Witness {
		return r.startWitness(ctx, files, operator)
	}
	a, err := r.startAgent(ctx, files, nil, nil)
	if err != nil {
		return nil, errors.Join(err, operator.Close())
	}
	return &agent.Started{
		Agent: a,
		Tasks: []func(context.Context){
			func(ctx context.Context) { r.groups.run(ctx, a) },
			r.renewer.run,
			func(ctx context.Context) { r.readmitAfterOperatorAbsence(ctx, a) },
		},
		ServeOperator: func(ctx context.Context) error { return r.serveOperator(ctx, operator, files) },
	}, nil
}

// startAgent starts the agent without groups. The documents add them. If peers is nil, it listens on its own.
func (r *runtime) startAgent(ctx context.Context, files *identity.Files, peers net.Listener,
	limit *rate.Limiter,
) (*agent.Agent, error) {
	s := r.settings
	c := &config.Config{Self: s.Pod, Domain: s.Namespace, API: s.API, Listen: s.Peers, State: s.StateDir}
	a, err := agent.New(ctx, c, agent.Options{
		Clock: clock.New(), Life: r.life, Listener: peers, Rate: limit, Store: r.store, Memory: r.memory,
		Certificates: files, Problems: r.renewer.Problems,
		Metrics: r.metrics, OnReport: r.reports.publish, Log: r.log,
	})
	if err != nil {
		return nil, err
	}
	r.agent.Store(a)
	a.Refresh() // The problems of the renewer may have changed meanwhile.
	r.log.Info("started agent", "self", s.Pod, "listen", s.Peers)
	return a, nil
}

func (r *runtime) serveOperator(ctx context.Context, listener net.Listener, files *identity.Files) error {
	handler := api.NewForOperator(operatorAPI{localAPI{r}, r.groups, r.reports}, r.metrics.Handler(r))
	return api.ServeOperator(ctx, listener, 0, files.PublicServer(), handler, r.log)
}

// readmitAfterOperatorAbsence makes the agent eligible again in all groups when no operator has read its reports for
// some time. Otherwise a process that the operator excluded before it stopped would remain ineligible, and a group
// could be without a coordinator for no other reason. An operator that returns receives a report that the process is
// eligible, and can exclude it again.
func (r *runtime) readmitAfterOperatorAbsence(ctx context.Context, a *agent.Agent) {
	for {
		select {
		case <-r.reports.absence.C:
			r.readmitAll(ctx, a)
			r.reports.awaitAbsence()
		case <-ctx.Done():
			return
		}
	}
}

func (r *runtime) readmitAll(ctx context.Context, a *agent.Agent) {
	for _, name := range a.Names() {
		g, ok := a.Find(name)
		if !ok {
			continue
		}
		// An error means that the agent has left the group meanwhile.
		if excluded, err := g.Excluded(ctx); err == nil && excluded && g.Readmit(ctx) == nil {
			r.log.Warn("ended exclusion by the operator, which is absent", "group", name,
				"absentFor", r.settings.OperatorAbsence)
		}
	}
}
