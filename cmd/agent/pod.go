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
the container. Its environment:

  POD_NAME, POD_NAMESPACE   the name of the agent, and its domain
  POD_IP                    accepts peers on port 7373, the operator on 7375
  CONCLAVE_GROUPS           the groups of the pod, separated by commas; or
  CONCLAVE_GROUPS_FILE      a file with the groups that select the pod
  CONCLAVE_IDENTITY         the URL of the identity service
  CONCLAVE_CA               CA certificates in PEM to verify it at first
  CONCLAVE_PROBE            the URL of a probe of the application
  CONCLAVE_LOG_LEVEL        debug, info (the default), warn or error
  CONCLAVE_API              the address of the local API (127.0.0.1:7374)
  CONCLAVE_API_UIDS         the users of a Unix socket (all who can reach it)`,
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
	flags.StringVar(&fromFlags.MountDir, "mounted", pod.MountDir,
		"the directory with the token and the groups that select the pod")
	flags.StringVar(&fromFlags.StateDir, "state", pod.StateDir,
		"the directory for the state that must survive a restart of the container")
	flags.StringVar(&fromFlags.API, "api", "",
		"the address of the local API for the application (default CONCLAVE_API, or "+pod.LocalAPI+")")
	flags.BoolVar(&verbose, "verbose", false,
		"also log connections and the messages of elections, as CONCLAVE_LOG_LEVEL=debug does")
	return cmd
}
