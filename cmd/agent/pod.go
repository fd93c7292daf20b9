package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/pod"
	"github.com/conclave-dev/conclave/internal/command"
)

func newPod() *cobra.Command {
	var mounted, stateDir string
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
			s.MountDir, s.StateDir, s.Build = mounted, stateDir, version
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			stderr := cmd.ErrOrStderr()
			s.DroppedLogLines = droppedLines(stderr)
			return pod.Run(ctx, s, logger(stderr, s.LogLevel))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&mounted, "mounted", pod.MountDir,
		"the directory with the token and the groups that select the pod")
	flags.StringVar(&stateDir, "state", pod.StateDir,
		"the directory for the state that must survive a restart of the container")
	return cmd
}
