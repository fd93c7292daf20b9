package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// The members of a group for tests: the application's own, and the one that leads instead.
const (
	fakeApplication = "application"
	fakeOther       = "other"
)

// fake is a group of two members in one process. Its agents are real ones, so an application under test sees what it
// will see in production.
type fake struct {
	group      string
	api, other string // the addresses of the two local APIs
	lease      time.Duration
	log        *slog.Logger
}

func newFake() *cobra.Command {
	var f fake
	cmd := &cobra.Command{
		Use:   "fake --group GROUP",
		Short: "Run a group for the tests of an application, which leads and loses the office on request",
		Long: `Run a group for the tests of an application, which leads and loses the office on request.

The group has two members with real agents in this process, which needs neither a
cluster nor a configuration: "application" at --api, to which the application
connects, and "other" at --other. The application leads once it has opened a
session. Then:

  lose the office   curl -f --retry 9 --retry-all-errors -X POST http://127.0.0.1:7374/v1/groups/GROUP/step-down
  lead again        curl -f --retry 9 --retry-all-errors -X POST http://127.0.0.1:7375/v1/groups/GROUP/step-down
  the agent hangs   kill -STOP this process, and later kill -CONT
  the agent crashes kill -KILL this process

A request returns when the successor leads. For a second after a change, the
status is 409, because the former coordinator isn't ready yet: repeat it.`,
		Example: `  conclave-agent fake --group ledger`,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.log = logger(cmd.ErrOrStderr(), slog.LevelInfo)
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return f.run(ctx)
		},
	}
	cmd.Flags().StringVar(&f.group, "group", "", "the group that the application uses")
	cmd.Flags().StringVar(&f.api, "api", "127.0.0.1:7374", "the address of the local API for the application")
	cmd.Flags().StringVar(&f.other, "other", "127.0.0.1:7375", "the address of the local API of the other member")
	cmd.Flags().DurationVar(&f.lease, "lease", control.DefaultLease,
		"the lease, as leaseMillis of the group in production")
	return cmd
}

// run runs both members until ctx ends or one of them fails.
func (f *fake) run(ctx context.Context) error {
	if err := config.CheckGroupName(f.group); err != nil {
		return command.UsageErrorf("--group %v", err)
	}
	if twoHeartbeats, most := 200*time.Millisecond,
		10*time.Minute; f.lease.Truncate(time.Millisecond) <= twoHeartbeats || f.lease > most {
		return command.UsageErrorf("--lease must be longer than %s and at most %s, such as 500ms, got %s",
			twoHeartbeats, most, f.lease)
	}
	folder, err := os.MkdirTemp("", "conclave-fake-")
	if err != nil {
		return fmt.Errorf("cannot create a directory for the state: %w", err)
	}
	defer os.RemoveAll(folder)
	var peers [2]net.Listener
	for i := range peers {
		if peers[i], err = transport.Listen(ctx, "127.0.0.1:0"); err != nil {
			return fmt.Errorf("cannot accept connections between the members: %w", err)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var other *group.Group
	var changes *group.Watcher[group.Leader]
	ended := make(chan error, len(peers))
	for _, self := range []string{fakeApplication, fakeOther} {
		store, err := state.Open(filepath.Join(folder, self))
		if err != nil {
			return err
		}
		member, process, err := f.newMember(ctx, self, store, peers)
		if err != nil {
			return err
		}
		other, _ = member.Find(f.group) // the last one
		changes = other.Watch()
		go func() {
			ended <- errors.Join(process.Run(ctx), store.Close())
			stop()
		}()
	}
	f.log.Info("started", "group", f.group, "api", f.api, "other", f.other)
	leadOnce(ctx, other, changes)
	return errors.Join(<-ended, <-ended)
}

// newMember returns a member, and its process, which isn't running yet.
func (f *fake) newMember(ctx context.Context, self string, store *state.Store,
	peers [2]net.Listener,
) (*agent.Agent, *agent.Process, error) {
	api, session, listener := f.api, "Required", peers[0]
	if self == fakeOther {
		api, session, listener = f.other, "Optional", peers[1]
	}
	c, err := config.Parse(self, fmt.Appendf(nil, `
self: %s
api: %q
listen: %q
tls: {insecure: true}
groups:
- name: %q
  application: {session: %s}
  preemption: {policy: Never, stableMillis: 0}
  safety: {leaseMillis: %d}
  timing: {drainMillis: %d}
  members:
  - {name: %s, priority: 2, address: %q}
  - {name: %s, priority: 1, address: %q}
`, self, api, listener.Addr(), f.group, session, f.lease.Milliseconds(), max(f.lease.Milliseconds(), 5000),
		fakeApplication, peers[0].Addr(), fakeOther, peers[1].Addr()))
	if err != nil {
		return nil, nil, err
	}
	local, err := agent.ListenLocalAPI(ctx, c.API)
	if err != nil {
		return nil, nil, err
	}
	registry := metrics.New()
	registry.Version = version
	a, err := agent.New(ctx, c, agent.Options{
		Clock: clock.New(), Life: agent.NewLife(), Listener: listener, Store: store,
		Log:     f.log.With("member", self),
		Metrics: registry,
	})
	if err != nil {
		return nil, nil, errors.Join(err, local.Close())
	}
	return a, &agent.Process{
		LocalAPI: local, AllowUser: agent.AllowUsers(nil), Groups: a.Local(), Metrics: registry.Handler(a), Log: f.log,
		Start: func(context.Context) (*agent.Started, error) { return &agent.Started{Agent: a}, nil },
	}, nil
}

// leadOnce makes the other member hand the office over as soon as the application has opened a session. It reads each
// change, because the application may lead at once and lose the office on request soon after.
func leadOnce(ctx context.Context, other *group.Group, changes *group.Watcher[group.Leader]) {
	for {
		change, err := changes.Next(ctx)
		if err != nil || change.Coordinator == fakeApplication {
			return
		}
		for change.Coordinator == fakeOther && ctx.Err() == nil {
			if _, err := other.StepDown(ctx, fakeApplication); err == nil || errors.Is(err, group.ErrNotLeading) {
				break
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}
