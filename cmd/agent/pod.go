package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/pod"
	"github.com/conclave-dev/conclave/internal/cli/command"
)

func newPod() *cobra.Command {
	var verbose bool
	var given pod.Settings
	cmd := &cobra.Command{
		Use:   "pod",
		Short: "Take part as the agent of a pod, in the groups that its operator says",
		Long: `Take part as the agent of a pod, in the groups that its operator says.

This is what runs in a container beside the application; Conclave's webhook and
kubectl conclave inject put it there. The container's environment has POD_NAME,
POD_NAMESPACE, POD_IP, CONCLAVE_GROUPS, CONCLAVE_IDENTITY and, if need be,
CONCLAVE_CA and CONCLAVE_PROBE.`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := pod.FromEnvironment(os.Getenv)
			if err != nil {
				return err
			}
			s.MountDir, s.StateDir, s.API, s.Build = given.MountDir, given.StateDir, given.API, version
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return pod.Run(ctx, s, logger(cmd.ErrOrStderr(), verbose))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&given.MountDir, "mounted", pod.MountDir, "the folder of the token, and of what is known of each group")
	flags.StringVar(&given.StateDir, "state", pod.StateDir, "the folder of what must outlive a restart of the container")
	flags.StringVar(&given.API, "api", pod.LocalAPI, "the address of the API for the application")
	flags.BoolVar(&verbose, "verbose", false, "log connections, too")
	return cmd
}
