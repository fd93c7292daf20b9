package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/pod"
	"github.com/conclave-dev/conclave/internal/command"
)

func newPod() *cobra.Command {
	var verbose bool
	var fromFlags pod.Settings
	cmd := &cobra.Command{
		Use:   "pod",
		Short: "Run the agent of a pod, in the groups that the operator configures",
		Long: `Run the agent of a pod, in the groups that the operator configures.

This command runs in a container beside the application. Conclave's webhook adds
the container. Its environment must have POD_NAME, POD_NAMESPACE, POD_IP,
CONCLAVE_GROUPS and CONCLAVE_IDENTITY. CONCLAVE_CA, CONCLAVE_PROBE,
CONCLAVE_LOG_LEVEL, CONCLAVE_API and CONCLAVE_API_UIDS are optional.`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := pod.FromEnvironment(os.Getenv)
			if err != nil {
				return err
			}
			s.MountDir, s.StateDir, s.Build = fromFlags.MountDir, fromFlags.StateDir, version
			if fromFlags.API != "" {
				s.API = fromFlags.API
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			stderr := cmd.ErrOrStderr()
			s.DroppedLogLines = droppedLines(stderr)
			if verbose {
				s.LogLevel = slog.LevelDebug
			}
			return pod.Run(ctx, s, logger(stderr, s.LogLevel))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&fromFlags.MountDir, "mounted", pod.MountDir, "the directory with the token and the groups that select the pod")
	flags.StringVar(&fromFlags.StateDir, "state", pod.StateDir, "the directory for the state that must survive a restart of the container")
	flags.StringVar(&fromFlags.API, "api", "", "the address of the local API for the application (default CONCLAVE_API, or "+pod.LocalAPI+")")
	flags.BoolVar(&verbose, "verbose", false, "also log connections and the messages of elections, as CONCLAVE_LOG_LEVEL=debug does")
	return cmd
}
