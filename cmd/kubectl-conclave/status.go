package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/cli/describe"
)

const asYAML = "yaml"

func newStatus() *cobra.Command {
	var (
		chosen   cluster
		everyone bool
		output   string
	)
	cmd := &cobra.Command{
		Use:   "status [GROUP]",
		Short: "Show who leads, the process status table, and what isn't well",
		Long: `Show a group, or all groups of a namespace: who leads, the process status table,
and what isn't well and what to do about it.

It is what the agents told the operator. The exit status is 0 whether the groups
are well or not; programs read the conditions, as kubectl wait does.`,
		Example: `  kubectl conclave status ledger
  kubectl conclave status --all-namespaces
  kubectl wait electiongroup/ledger --for=condition=Ready`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneGroup(cmd, args)
		},
		ValidArgsFunction: chosen.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" {
				if err := checkOutput(output, []string{asJSON, asYAML}); err != nil {
					return err
				}
			}
			if everyone && len(args) > 0 {
				return command.UsageErrorf("--all-namespaces shows all groups: leave it out, or %s", args[0])
			}
			groups, err := chosen.groups(cmd.Context(), args, everyone)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), cmd.ErrOrStderr(), groups, output, len(args) == 1)
		},
	}
	chosen.register(cmd.Flags())
	cmd.Flags().BoolVarP(&everyone, "all-namespaces", "A", false, "show the groups of all namespaces")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml: the objects themselves")
	return cmd
}

// groups are the named one, or all there are.
func (c *cluster) groups(ctx context.Context, names []string, everywhere bool) ([]v1.ElectionGroup, error) {
	connected, err := c.connect()
	if err != nil {
		return nil, err
	}
	namespace, err := c.namespace()
	if err != nil {
		return nil, err
	}
	if len(names) == 1 {
		g, err := group(ctx, connected, namespace, names[0])
		if err != nil {
			return nil, err
		}
		return []v1.ElectionGroup{*g}, nil
	}
	if everywhere {
		namespace = ""
	}
	var list v1.ElectionGroupList
	if err := connected.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, refused(err)
	}
	for i := range list.Items {
		named(&list.Items[i])
	}
	slices.SortFunc(list.Items, func(a, b v1.ElectionGroup) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return list.Items, nil
}

// show writes groups for people, or as objects for programs: a single one as
// itself, if it was asked for by name.
func show(out, notes io.Writer, groups []v1.ElectionGroup, output string, single bool) error {
	if output != "" {
		return writeObjects(out, groups, output, single)
	}
	if len(groups) == 0 {
		fmt.Fprintln(notes, "No groups found.")
	}
	for i := range groups {
		if i > 0 {
			fmt.Fprintln(out)
		}
		describe.Status(out, &groups[i], time.Now())
	}
	return nil
}

func writeObjects(out io.Writer, groups []v1.ElectionGroup, output string, single bool) error {
	var object any = map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": groups}
	if single {
		object = &groups[0]
	}
	text, err := json.MarshalIndent(object, "", "    ")
	if err == nil && output == asYAML {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("write the groups: %w", err)
	}
	_, err = fmt.Fprintln(out, strings.TrimSuffix(string(text), "\n"))
	return err
}

// complete completes the name of a group.
func (c *cluster) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	groups, err := c.groups(cmd.Context(), nil, false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range groups {
		names = append(names, groups[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
