package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/cli/describe"
)

func newWatch() *cobra.Command {
	var chosen cluster
	cmd := &cobra.Command{
		Use:   "watch GROUP",
		Short: "Show a group live, or each change of it in a line",
		Long: `Show a group live: on a terminal, as status shows it, with the last changes
below; otherwise, each change in a line, with who leads in which term, and how
long nobody did.

It goes on until it is interrupted, also while the API server is away. How long
nobody led is what the status showed; agents that are watched directly tell it
more exactly.`,
		Example: `  kubectl conclave watch ledger
  kubectl conclave watch ledger | grep leads`,
		Args:              oneGroup,
		ValidArgsFunction: chosen.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return chosen.watch(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	chosen.register(cmd.Flags())
	return cmd
}

func (c *cluster) watch(ctx context.Context, out, notes io.Writer, name string) error {
	groups, err := c.groups(ctx, []string{name}, false) // to begin with, it must be there
	if err != nil {
		return err
	}
	connected, err := c.connect()
	if err != nil {
		return err
	}
	f := follower{client: connected, namespace: groups[0].Namespace, name: name, pause: time.Second}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return onScreen(ctx, file, &f)
	}
	return inLines(ctx, out, notes, &f)
}

// inLines writes a line for each change.
func inLines(ctx context.Context, out, notes io.Writer, f *follower) error {
	var chronicle describe.ChangeLog
	f.changed = func(g *v1.ElectionGroup) {
		now := time.Now()
		for _, text := range chronicle.Append(g, now) {
			fmt.Fprintf(out, "%s  %s\n", now.UTC().Format(stamp), text)
		}
	}
	f.lost = func(err error) { fmt.Fprintln(notes, absence(err)) }
	return f.run(ctx)
}

const stamp = "2006-01-02T15:04:05.000Z"

func absence(err error) string {
	if err == nil {
		return "the API server answers again"
	}
	return fmt.Sprintf("the API server doesn't answer, and is asked again: %s", refused(err))
}

// screen is what is shown on a terminal.
type screen struct {
	to        *os.File
	chronicle describe.ChangeLog
	group     *v1.ElectionGroup
	absence   string
	// last are the last changes, the newest last.
	last []string
}

// changesShown is how many changes are shown below the table.
const changesShown = 8

// onScreen draws the group anew whenever it changes, and each second, since it
// also shows how long things have lasted.
func onScreen(ctx context.Context, to *os.File, f *follower) error {
	s := screen{to: to}
	news := make(chan func())
	tell := func(change func()) {
		select {
		case news <- change:
		case <-ctx.Done():
		}
	}
	f.changed = func(g *v1.ElectionGroup) { tell(func() { s.changed(g) }) }
	f.lost = func(err error) {
		tell(func() {
			s.absence = ""
			if err != nil {
				s.absence = absence(err)
			}
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	seconds := time.NewTicker(time.Second)
	defer seconds.Stop()
	for {
		select {
		case err := <-ended:
			fmt.Fprintln(to)
			return err
		case change := <-news:
			change()
		case <-seconds.C:
		}
		s.draw(time.Now())
	}
}

func (s *screen) changed(g *v1.ElectionGroup) {
	now := time.Now()
	for _, text := range s.chronicle.Append(g, now) {
		s.last = append(s.last, now.Format("15:04:05.000")+"  "+text)
	}
	s.last = s.last[max(0, len(s.last)-changesShown):]
	s.group = g
}

// draw writes over what is there, line by line, so that nothing flickers.
func (s *screen) draw(now time.Time) {
	width, height, err := term.GetSize(int(s.to.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	var text strings.Builder
	text.WriteString("\x1b[H")
	for i, line := range cropped(s.lines(now), width, height) {
		if i > 0 {
			text.WriteString("\r\n")
		}
		text.WriteString(line + "\x1b[K")
	}
	text.WriteString("\x1b[J")
	fmt.Fprint(s.to, text.String())
}

func (s *screen) lines(now time.Time) []string {
	var text strings.Builder
	if s.group != nil {
		describe.Status(&text, s.group, now)
	}
	if s.absence != "" {
		fmt.Fprintf(&text, "\n%s\n", s.absence)
	}
	text.WriteString("\n" + strings.Join(s.last, "\n"))
	return strings.Split(text.String(), "\n")
}

// cropped keeps to the size of the terminal. What doesn't fit are the last rows
// of the table and the oldest changes: who leads is on top, and what is new is
// at the bottom.
func cropped(lines []string, width, height int) []string {
	if over := len(lines) - height; over > 0 {
		bottom := min(len(lines)/2, height/2)
		top := height - bottom
		lines = append(append([]string{}, lines[:top]...), lines[top+over:]...)
	}
	short := make([]string, len(lines))
	for i, line := range lines {
		if letters := []rune(line); len(letters) > width {
			line = string(letters[:width])
		}
		short[i] = line
	}
	return short
}
