// Package explain is the command kubectl conclave explain: why a coordinator was elected.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/plugin/output"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// explainOutputs are the outputs of explain.
var explainOutputs = []string{output.Text, output.Mermaid, output.JSON, output.YAML}

type options struct {
	cluster clusteraccess.Flags
	format  string
	term    uint64
}

// explanation is the output for programs.
type explanation struct {
	describe.Explanation
	// Election is the transcript of an election, if the agents could be reached.
	Election *transcript.Election `json:"election,omitempty"`
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "explain GROUP",
		Short: "Explain why this coordinator was elected, and which is next",
		Long: `Explain why the coordinator of a group was elected, which member is next, how
many failures the group tolerates, and which problems it has.

The last part is the transcript of the last election, or with --term of an
earlier one: who noticed the failure, which messages the agents exchanged, and
how long each step took. The agents keep it in memory. It is read through
forwarded ports, which needs the same permissions as kubectl port-forward.`,
		Example: `  kubectl conclave explain ledger
  kubectl conclave explain ledger --term 279502082
  kubectl conclave explain ledger -o mermaid > election.mmd`,
		Args:              clusteraccess.RequireGroup,
		ValidArgsFunction: o.cluster.CompleteGroup,
		RunE:              o.run,
	}
	o.cluster.AddTo(cmd)
	cmd.Flags().Uint64Var(&o.term, "term", 0, "print only the transcript of the election in this term")
	cmd.Flags().StringVarP(&o.format, "output", "o", output.Text, "text, json or yaml; or mermaid, a sequence diagram of the election")
	command.CompleteFrom(cmd, "output", explainOutputs)
	command.CompleteWith(cmd, "term", o.cluster.CompleteTerm)
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	if err := output.Choose(&o.format, explainOutputs); err != nil {
		return err
	}
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	group, err := o.cluster.Group(ctx, args[0])
	if err != nil {
		return err
	}
	everything := o.term == 0 && o.format == output.Text
	if everything {
		o.cluster.WarnOfSilentOperator(cmd)
		describe.Explain(out, group, o.cluster.Now())
	}
	forward, err := o.cluster.Forwarder()
	if err == nil {
		err = MayReadJournals(ctx, &o.cluster, group.Namespace)
	}
	var e *transcript.Election
	if err == nil {
		e, err = LastElection(ctx, group, o.term, forward)
	}
	switch {
	case everything:
		writeLastElection(out, e, err)
		return nil
	case err != nil && (o.term != 0 || o.format == output.Mermaid):
		return err
	case err != nil:
		fmt.Fprintf(cmd.ErrOrStderr(), "the transcript of the last election is missing: %v\n", err)
	}
	return o.write(out, group, e)
}

// MayReadJournals returns an error if the user may not read the journals of agents.
func MayReadJournals(ctx context.Context, cluster *clusteraccess.Flags, namespace string) error {
	connected, err := cluster.Connect()
	if err != nil {
		return err
	}
	return clusteraccess.CheckForwarding(ctx, connected, namespace, "reading the agents' journals")
}

// LastElection returns the transcript of the election in a term, or with term 0 of the last one.
func LastElection(ctx context.Context, g *v1.ElectionGroup, term uint64, forward clusteraccess.PortForwarder) (*transcript.Election, error) {
	journals, missing := ReadJournals(ctx, g, forward)
	if len(journals) == 0 {
		return nil, noJournalError(missing)
	}
	if e := transcript.Merge(journals, term, missing...); e != nil {
		return e, nil
	}
	terms := transcript.Terms(journals)
	if len(terms) == 0 {
		return nil, errors.New("the agents' journals have no election")
	}
	const shown = 10
	texts := strings.Fields(strings.Trim(fmt.Sprint(terms[max(0, len(terms)-shown):]), "[]"))
	return nil, fmt.Errorf("the agents' journals have no election in term %d; the latest terms are %s", term, strings.Join(texts, ", "))
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

func (o *options) write(out io.Writer, g *v1.ElectionGroup, e *transcript.Election) error {
	switch o.format {
	case output.Text:
		e.WriteText(out)
		return nil
	case output.Mermaid:
		return e.WriteMermaid(out)
	}
	return output.Write(out, explanation{describe.ExplanationOf(g, o.cluster.Now()), e}, o.format)
}

// writeLastElection writes the last section of the explanation.
func writeLastElection(out io.Writer, e *transcript.Election, err error) {
	fmt.Fprint(out, "\nLast election\n")
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
