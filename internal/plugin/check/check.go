// Package check is the command kubectl conclave check. It gathers facts; package rules judges them.
package check

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/plugin/check/rules"
	"github.com/conclave-dev/conclave/internal/plugin/output"
)

// options are the flags of check.
type options struct {
	cluster       clusteraccess.Flags
	allNamespaces bool
	output        string
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "check [GROUP]",
		Short: "Find problems of the installation and of groups, and what to do",
		Long: `Check the operator, its webhook, the groups of a namespace and their pods, and
say what to do about each problem. Problems are, for example, a group without a
majority, an expired CA, a pod without an agent, NetworkPolicies that may block
agents, or agents that are older than the operator.

It changes nothing, and doesn't evaluate NetworkPolicies: it names those that
select the pods. The exit status is 3 if there is a problem; warnings don't
count. It is 1 if nothing could be checked.

Permissions: list electiongroups, pods, deployments and networkpolicies; get the
mutatingwebhookconfiguration conclave; create subjectaccessreviews. What you may
not read is reported as unknown.`,
		Example: `  kubectl conclave check
  kubectl conclave check -A
  kubectl conclave check ledger -o json`,
		Args:              clusteraccess.OptionalGroup,
		ValidArgsFunction: o.cluster.CompleteGroup,
		RunE:              o.run,
	}
	o.cluster.AddTo(cmd)
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "check the groups and pods of all namespaces")
	output.AddFlag(cmd, &o.output, "print the findings as json or yaml")
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	if err := output.ChooseOptional(&o.output); err != nil {
		return err
	}
	if o.allNamespaces && len(args) > 0 {
		return command.UsageErrorf("--all-namespaces checks all groups: remove it, or remove %q", args[0])
	}
	facts, err := o.gather(cmd.Context(), args)
	if err != nil {
		return err
	}
	findings := rules.Run(facts)
	if o.output != "" {
		err = output.Write(cmd.OutOrStdout(), map[string]any{"findings": findings}, o.output)
	} else {
		writeFindings(cmd.OutOrStdout(), findings)
	}
	if err != nil {
		return err
	}
	count := map[rules.Level]int{}
	for _, f := range findings {
		count[f.Level]++
	}
	switch {
	case count[rules.Problem] > 0:
		return &FindingsError{count[rules.Problem]}
	case count[rules.Unknown] == len(findings):
		return errors.New("nothing could be checked: each line says why")
	}
	return nil
}

// FindingsError reports that check found problems, which the output describes.
type FindingsError struct{ problems int }

func (e *FindingsError) Error() string {
	if e.problems == 1 {
		return "1 problem was found"
	}
	return fmt.Sprintf("%d problems were found", e.problems)
}

func writeFindings(w io.Writer, findings []rules.Finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "%-8s %s: %s\n", strings.ToUpper(string(f.Level)), f.Object, f.Message)
		if f.Advice != "" {
			fmt.Fprintf(w, "         %s\n", f.Advice)
		}
	}
}
