package main

import (
	"context"
	"fmt"
	"maps"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/command"
)

// The limits of the check: how long it may take, how many pods a request lists, and how many groups the error names.
const (
	checkTimeout = time.Minute
	checkPage    = 500
	checkNames   = 10
)

func newCheckUninstall() *cobra.Command {
	check := &cobra.Command{
		Use:   "check-uninstall",
		Short: "Fail if pods could not be deleted without the operator",
		Long: `Without an operator, the pods of groups in Strict mode remain in the state
Terminating, because nobody finds out that they have stopped. This command fails
if there are such pods, and names their groups.`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return checkUninstall(ctx)
		},
	}
	check.SetFlagErrorFunc(command.ExplainFlag)
	return check
}

func checkUninstall(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("cannot load the kubeconfig: %w", err)
	}
	live, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("cannot connect to the API server: %w", err)
	}
	held, err := heldPods(ctx, live)
	if err != nil {
		return fmt.Errorf("cannot list pods: %w", err)
	}
	if len(held) == 0 {
		return nil
	}
	groups, pods := slices.Sorted(maps.Keys(held)), 0
	for _, group := range groups {
		pods += held[group]
	}
	names := strings.Join(groups[:min(len(groups), checkNames)], ", ")
	if len(groups) > checkNames {
		names += ", ..."
	}
	return fmt.Errorf("%d pods of groups in Strict mode could not be deleted without the operator: delete these groups "+
		"first, or set another mode: %s", pods, names)
}

// heldPods returns the groups that hold pods, as NAMESPACE/GROUP, with the number of these pods.
func heldPods(ctx context.Context, live client.Client) (map[string]int, error) {
	groups := map[string]int{}
	page := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for {
		if err := live.List(ctx, page, client.Limit(checkPage), client.Continue(page.Continue)); err != nil {
			return nil, err
		}
		for i := range page.Items {
			for _, finalizer := range page.Items[i].Finalizers {
				if group, held := strings.CutPrefix(finalizer, v1.StopFinalizerPrefix); held {
					groups[page.Items[i].Namespace+"/"+group]++
				}
			}
		}
		if page.Continue == "" {
			return groups, nil
		}
	}
}
