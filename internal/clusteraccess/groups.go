package clusteraccess

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/command"
)

// RequireGroup accepts the name of one group as the only argument.
func RequireGroup(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return command.UsageErrorf("the name of a group is required, such as: %s ledger", cmd.CommandPath())
	}
	return command.UsageErrorf("%s accepts one group, got %d: remove %q", cmd.CommandPath(), len(args), args[1])
}

// OptionalGroup accepts the name of one group, or no arguments.
func OptionalGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return RequireGroup(cmd, args)
}

// Group reads the group of this name.
func (c *Flags) Group(ctx context.Context, name string) (*v1.ElectionGroup, error) {
	connected, err := c.Connect()
	if err != nil {
		return nil, err
	}
	namespace, err := c.Namespace()
	if err != nil {
		return nil, err
	}
	return GetGroup(ctx, connected, namespace, name)
}

// GetGroup reads a group. The error names similar groups if there is none of this name.
func GetGroup(ctx context.Context, c client.Client, namespace, name string) (*v1.ElectionGroup, error) {
	g := &v1.ElectionGroup{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, g); err != nil {
		if apierrors.IsNotFound(err) && !isKindMissing(err) {
			return nil,
				fmt.Errorf("group %s not found in namespace %s%s; to list all groups, run: kubectl get electiongroups -A",
					name, namespace, cmp.Or(sameGroup(ctx, c, name), similarGroup(ctx, c, namespace, name)))
		}
		return nil, RequestError(err)
	}
	setKind(g)
	return g, nil
}

// sameGroup names the other namespaces that have a group of this name.
func sameGroup(ctx context.Context, c client.Client, name string) string {
	var list v1.ElectionGroupList
	if err := c.List(ctx, &list, client.MatchingFields{metav1.ObjectNameField: name}); err != nil || len(list.Items) == 0 {
		return "" // Most users may not list the groups of all namespaces.
	}
	const shown = 3
	var namespaces []string
	for i := range list.Items[:min(shown, len(list.Items))] {
		namespaces = append(namespaces, list.Items[i].Namespace)
	}
	return fmt.Sprintf(" (did you mean -n %s?)", strings.Join(namespaces, " or -n "))
}

// similarGroup asks whether the user means another group of the namespace.
func similarGroup(ctx context.Context, c client.Client, namespace, name string) string {
	var list v1.ElectionGroupList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return "" // Users who may read one group may not list all.
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return command.DidYouMean(name, names)
}

// Groups lists the groups of the selected namespace, or of all namespaces.
func (c *Flags) Groups(ctx context.Context, allNamespaces bool) ([]v1.ElectionGroup, error) {
	connected, err := c.Connect()
	if err != nil {
		return nil, err
	}
	namespace, err := c.Namespace()
	if err != nil {
		return nil, err
	}
	if allNamespaces {
		namespace = ""
	}
	var list v1.ElectionGroupList
	if err := connected.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, RequestError(err)
	}
	for i := range list.Items {
		setKind(&list.Items[i])
	}
	slices.SortFunc(list.Items, func(a, b v1.ElectionGroup) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return list.Items, nil
}

// Where says in which namespace groups were looked for, or "" for all.
func (c *Flags) Where(allNamespaces bool) string {
	namespace, err := c.Namespace()
	if allNamespaces || err != nil {
		return ""
	}
	return " in namespace " + namespace + "; for those of all namespaces, use -A"
}

// CompleteGroup completes the name of a group.
func (c *Flags) CompleteGroup(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	groups, err := c.Groups(cmd.Context(), false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range groups {
		names = append(names, groups[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteMember completes the name of a member of the group in the arguments.
func (c *Flags) CompleteMember(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.completeOf(cmd, args, func(g *v1.ElectionGroup) (names []string) {
		for i := range g.Status.Processes {
			names = append(names, g.Status.Processes[i].Pod)
		}
		return names
	})
}

// CompleteTerm completes the term of a recent tenure of the group in the arguments.
func (c *Flags) CompleteTerm(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.completeOf(cmd, args, func(g *v1.ElectionGroup) (terms []string) {
		for i := range g.Status.History {
			t := &g.Status.History[i]
			terms = append(terms, cobra.CompletionWithDesc(strconv.FormatInt(t.Term, 10), t.Pod))
		}
		return terms
	})
}

// completeOf proposes something of the group in the arguments.
func (c *Flags) completeOf(
	cmd *cobra.Command, args []string, of func(*v1.ElectionGroup) []string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	group, err := c.Group(cmd.Context(), args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return of(group), command.InOrder
}

// setKind sets the kind and API version, which clients remove, for -o json|yaml.
func setKind(g *v1.ElectionGroup) { g.SetGroupVersionKind(v1.GroupVersion.WithKind("ElectionGroup")) }

// isKindMissing reports whether the cluster lacks the custom resource definition, and not only the object.
func isKindMissing(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// RequestError describes in one line why a request to the API server failed.
func RequestError(err error) error {
	if isKindMissing(err) {
		return fmt.Errorf("this cluster has no ElectionGroups: install Conclave first (%w)", command.SingleLine(err))
	}
	if failed, ok := err.(*url.Error); ok { //nolint:errorlint // as client-go returns it, to leave out the URL
		return fmt.Errorf("cannot reach the API server: %w", command.SingleLine(failed.Err))
	}
	return command.SingleLine(err)
}
