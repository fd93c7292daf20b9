// Package watch is the command kubectl conclave watch: a live view of a group.
package watch

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/plugin/output"
)

// New returns the command.
func New() *cobra.Command {
	var (
		cluster clusteraccess.Flags
		format  string
	)
	cmd := &cobra.Command{
		Use:   "watch GROUP",
		Short: "Show a group live, or print a line for each change",
		Long: `Show a group live. On a terminal, the output is that of status, with the latest
changes below. Otherwise, each change is a line with the coordinator, its term,
and the time without a coordinator.

The command runs until it is interrupted. It resumes a broken watch without a
loss, or prints the differences if the API server has lost the changes. A
failover may be too short for the status to show it: the event streams of the
agents are more precise.

Permissions: get, list and watch electiongroups.`,
		Example: `  kubectl conclave watch ledger
  kubectl conclave watch ledger | grep coordinator`,
		Args:              clusteraccess.RequireGroup,
		ValidArgsFunction: cluster.CompleteGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.ChooseOptional(&format); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return watchGroup(ctx, &cluster, cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], format)
		},
	}
	cluster.AddTo(cmd)
	output.AddFlag(cmd, &format, "print each change as json or yaml")
	return cmd
}

func watchGroup(ctx context.Context, cluster *clusteraccess.Flags, out, notes io.Writer, name, format string) error {
	group, err := cluster.Group(ctx, name) // A name that doesn't exist at the start is an error.
	if err != nil {
		return err
	}
	connected, err := cluster.Connect()
	if err != nil {
		return err
	}
	w := GroupWatcher{Client: connected, Namespace: group.Namespace, Name: name, RetryInterval: time.Second}
	operator := operatorWatcher{read: clusteraccess.LeaseReader(connected), now: cluster.Now}
	if file, ok := output.TerminalOf(out); ok && format == "" {
		return showOnScreen(ctx, file, &w, &operator)
	}
	return printChanges(ctx, out, notes, &w, &operator, format)
}

// Change is a change of a group, for programs. The fields are those of the status after it.
type Change struct {
	Time        time.Time       `json:"time"`
	Changes     []string        `json:"changes"`
	Coordinator *v1.Coordinator `json:"coordinator,omitempty"`
	Members     int32           `json:"members"`
	Ready       int32           `json:"readyMembers"`
}

func newChange(g *v1.ElectionGroup, changes []string, now time.Time) Change {
	c := Change{Time: now.UTC(), Changes: changes}
	if g != nil {
		c.Coordinator = g.Status.Coordinator
		c.Ready, c.Members = describe.MembersUp(g)
	}
	return c
}

// printChanges prints a line for each change, or a value for each change of the status.
func printChanges(ctx context.Context, out, notes io.Writer, w *GroupWatcher, operator *operatorWatcher, format string) error {
	var (
		changes describe.ChangeLog
		noting  sync.Mutex
	)
	note := func(text string) {
		noting.Lock()
		defer noting.Unlock()
		fmt.Fprintln(notes, text)
	}
	w.OnConnection = func(err error) { note(connectionText(err)) }
	operator.onConnection = w.OnConnection
	operator.onChange = func(since time.Time) { note(operatorText(since, operator.now())) }
	ctx, cancel := context.WithCancel(ctx)
	var observing sync.WaitGroup
	observing.Go(func() { operator.run(ctx) })
	defer observing.Wait()
	defer cancel()
	w.OnChange = func(g *v1.ElectionGroup) {
		now := time.Now()
		if format != "" {
			if texts := changes.Append(g, now); len(texts) > 0 {
				// As for text: if nobody reads the output, that ends the command.
				_ = output.Write(out, newChange(g, texts, now), format)
			}
			return
		}
		for _, text := range changes.Append(g, now) {
			fmt.Fprintf(out, "%s  %s\n", now.UTC().Format(timestamp), text)
		}
	}
	return w.Run(ctx)
}

const timestamp = "2006-01-02T15:04:05.000Z"

func connectionText(err error) string {
	if err == nil {
		return "the API server is reachable again"
	}
	return fmt.Sprintf("cannot watch the group; retrying: %s", clusteraccess.RequestError(err))
}

// screen is the content of the terminal.
type screen struct {
	view view
	// connection describes why the API server is unreachable; empty if it is reachable.
	connection string
	// silentSince is since when the operator has not shown that it runs, or zero.
	silentSince time.Time
}

// showOnScreen redraws the screen whenever the group changes, and each second,
// since it also shows ages.
func showOnScreen(ctx context.Context, terminal *os.File, w *GroupWatcher, operator *operatorWatcher) error {
	var s screen
	updates := make(chan func())
	send := func(update func()) {
		select {
		case updates <- update:
		case <-ctx.Done():
		}
	}
	w.OnChange = func(g *v1.ElectionGroup) { send(func() { s.view.set(g, time.Now()) }) }
	w.OnConnection = func(err error) {
		send(func() {
			s.connection = ""
			if err != nil {
				s.connection = connectionText(err)
			}
		})
	}
	operator.onConnection = w.OnConnection
	operator.onChange = func(since time.Time) { send(func() { s.silentSince = since }) }
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	go operator.run(ctx)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			fmt.Fprintln(terminal)
			return err
		case update := <-updates:
			update()
		case <-ticker.C:
		}
		show(terminal, func(width, height int) []string { return s.lines(operator.now(), width, height) })
	}
}

func (s *screen) lines(now time.Time, width, height int) []string {
	var notes []string
	if s.connection != "" {
		notes = append(notes, s.connection)
	}
	if !s.silentSince.IsZero() {
		notes = append(notes, operatorText(s.silentSince, now))
	}
	return s.view.render(now, width, height, notes...)
}
