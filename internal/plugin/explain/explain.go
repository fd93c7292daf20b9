// Package explain is the command kubectl conclave explain: why a coordinator was elected.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/plugin/output"
	"github.com/conclave-dev/conclave/internal/plugin/version"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// explainOutputs are the outputs of explain.
var explainOutputs = []string{output.Text, output.Mermaid}

type options struct {
	cluster clusteraccess.Flags
	format  string
	term    uint64
	// file is that of --html, and plugin the version that make build has set.
	file, plugin string
}

// New returns the command of the plugin in a version.
func New(plugin string) *cobra.Command {
	o := options{plugin: plugin}
	cmd := &cobra.Command{
		Use:   "explain GROUP",
		Short: "Explain why this coordinator was elected, and which is next",
		Long: `Explain why the coordinator of a group was elected, which member is next, how
many failures the group tolerates in the worst case, and which problems it has.

The part Application has the sessions of the coordinator's application. The last
part is the transcript of the last election, or with --term of an earlier one.
It has the phases with their times, the number of messages, how long clients
waited if agents carry their connections, and each step in the order of causes:
what an agent gets, what it finds, and what it sends. The messages of the office
are BEAT, GRANT, DENY, RESIGNED and PROBE. Heartbeats that repeat the one before
are left out. A member whose journal is lost is named as missing. Times between
two agents are wrong by at most their round trip.

With --html, all this is written to one HTML file, with the last elections as
diagrams that can be replayed. It needs no network.

Permissions: get electiongroups; for the sessions and the transcript, create
pods/portforward. Without the latter, a line says so in their place.`,
		Example: `  kubectl conclave explain ledger
  kubectl conclave explain ledger --term 279502082
  kubectl conclave explain ledger --html ledger.html
  kubectl conclave explain ledger -o mermaid > election.mmd`,
		Args:              clusteraccess.RequireGroup,
		ValidArgsFunction: o.cluster.CompleteGroup,
		RunE:              o.run,
	}
	o.cluster.AddTo(cmd)
	cmd.Flags().Uint64Var(&o.term, "term", 0, "print only the transcript of the election in this term")
	cmd.Flags().StringVarP(&o.format, "output", "o", output.Text,
		"text, or mermaid: only a sequence diagram of the election")
	cmd.Flags().StringVar(&o.file, "html", "",
		"write the explanation and the last elections to this file, which any browser replays")
	command.CompleteFile(cmd, "html")
	command.CompleteFrom(cmd, "output", explainOutputs)
	command.CompleteWith(cmd, "term", o.cluster.CompleteTerm)
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	if err := output.Choose(&o.format, explainOutputs); err != nil {
		return err
	}
	html := cmd.Flags().Changed("html")
	if html && cmd.Flags().Changed("output") {
		return command.UsageErrorf("--html and --output exclude each other: omit one of them")
	}
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	group, err := o.cluster.Group(ctx, args[0])
	if err != nil {
		return err
	}
	if html {
		return o.writeFile(cmd, group)
	}
	everything := o.term == 0 && o.format == output.Text
	application := make(chan string, 1)
	if everything {
		o.cluster.WarnOfSilentOperator(cmd)
		describe.Explain(out, group, o.cluster.Now())
		go func() { application <- o.application(ctx, group) }()
	}
	elections, err := o.elections(ctx, group, 1)
	var e *transcript.Election
	if err == nil {
		e = elections[0]
	}
	switch {
	case everything:
		fmt.Fprint(out, <-application)
		writeElection(out, "Last election", e, err)
		return nil
	case err != nil:
		return err
	case o.format == output.Mermaid:
		return e.WriteMermaid(out)
	}
	e.WriteText(out)
	return nil
}

// writeFile writes the page of a group.
func (o *options) writeFile(cmd *cobra.Command, group *v1.ElectionGroup) error {
	o.cluster.WarnOfSilentOperator(cmd)
	const shown = 10
	f := dashboard.File{Group: group, At: o.cluster.Now()}
	err := output.CreateFile(cmd.Context(), "html", o.file, func(ctx context.Context, file io.Writer) (err error) {
		var text, versions strings.Builder
		describe.Explain(&text, group, f.At)
		if f.Elections, err = o.elections(ctx, group, shown); err != nil {
			if o.term != 0 {
				return err
			}
			f.Missing = err.Error()
			writeElection(&text, "Last election", nil, err)
		}
		for i, e := range f.Elections {
			title := "Last election"
			if i > 0 {
				title = fmt.Sprintf("Election in term %d", e.Term)
			}
			writeElection(&text, title, e, nil)
		}
		if err := version.Write(ctx, &versions, &versions, &o.cluster, o.plugin); err != nil {
			return err
		}
		f.Text, f.Versions = output.WithoutControls(text.String()), output.WithoutControls(versions.String())
		return f.Write(file)
	})
	if err != nil {
		return err
	}
	if f.Missing != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "the elections are missing: %s\n", f.Missing)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: the last elections: %d\n", o.file, len(f.Elections))
	return err
}

// elections returns the last elections, the newest first, or that of the term that the user has chosen.
func (o *options) elections(ctx context.Context, group *v1.ElectionGroup, most int) ([]*transcript.Election, error) {
	forward, err := o.forwarder(ctx, group)
	if err != nil {
		return nil, err
	}
	return Elections(ctx, group, o.term, most, forward)
}

// forwarder returns what connects to the agents, if the user may do that.
func (o *options) forwarder(ctx context.Context, group *v1.ElectionGroup) (clusteraccess.PortForwarder, error) {
	if err := MayReadJournals(ctx, &o.cluster, group.Namespace); err != nil {
		return nil, err
	}
	return o.cluster.Forwarder()
}

// MayReadJournals returns an error if the user may not read the journals of agents.
func MayReadJournals(ctx context.Context, cluster *clusteraccess.Flags, namespace string) error {
	connected, err := cluster.Connect()
	if err != nil {
		return err
	}
	return clusteraccess.CheckForwarding(ctx, connected, namespace, "reading the agents' journals")
}

// Elections returns the transcript of the election in a term, or with term 0 of the last elections, the newest first.
func Elections(ctx context.Context, g *v1.ElectionGroup, term uint64, most int,
	forward clusteraccess.PortForwarder,
) ([]*transcript.Election, error) {
	journals, missing := ReadJournals(ctx, g, forward)
	if len(journals) == 0 {
		return nil, noJournalError(missing)
	}
	terms := transcript.Terms(journals)
	if e := transcript.Merge(journals, term, missing...); e != nil {
		found := []*transcript.Election{e}
		for _, earlier := range slices.Backward(terms) {
			if term == 0 && earlier != e.Term && len(found) < most {
				found = append(found, transcript.Merge(journals, earlier, missing...))
			}
		}
		return found, nil
	}
	if len(terms) == 0 {
		return nil, errors.New("the agents' journals have no election")
	}
	const shown = 10
	texts := strings.Fields(strings.Trim(fmt.Sprint(terms[max(0, len(terms)-shown):]), "[]"))
	return nil, fmt.Errorf("the agents' journals have no election in term %d; the latest terms are %s",
		term, strings.Join(texts, ", "))
}

// noJournalError explains why there is no journal at all.
func noJournalError(missing []transcript.Missing) error {
	const shown = 3
	var reasons []string
	for i, m := range missing {
		if i == shown {
			reasons = append(reasons, fmt.Sprintf("and %d more", len(missing)-shown))
			break
		}
		reasons = append(reasons, m.Agent+": "+m.Reason)
	}
	if len(reasons) == 0 {
		return errors.New("the group has no members yet")
	}
	return fmt.Errorf("no agent could be reached (%s)", strings.Join(reasons, "; "))
}

// writeElection writes a section of the explanation, or why it is missing.
func writeElection(out io.Writer, title string, e *transcript.Election, err error) {
	fmt.Fprintf(out, "\n%s\n", title)
	if err != nil {
		fmt.Fprintf(out, "  Not shown: %v.\n", err)
		return
	}
	var text strings.Builder
	e.WriteText(&text)
	for line := range strings.Lines(text.String()) {
		fmt.Fprint(out, strings.TrimRight("  "+line, " \n")+"\n")
	}
}
