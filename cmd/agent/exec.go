package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/supervise"
	"github.com/conclave-dev/conclave/internal/command"
)

// programStatus is the exit status of a program that exec has run.
type programStatus int

func (s programStatus) Error() string {
	return fmt.Sprintf("the program has ended with status %d", int(s))
}

type execError struct {
	status int
	error
}

// runsProgram reports whether the arguments run a program, which inherits stderr and timer slack.
func runsProgram(arguments []string) bool {
	return len(arguments) > 0 && slices.Contains([]string{"exec", "guard"}, arguments[0])
}

func newExec() *cobra.Command {
	options := supervise.Options{}
	cmd := &cobra.Command{
		Use:   "exec --group GROUP -- COMMAND [ARGUMENT...]",
		Short: "Run a program only while this process is coordinator",
		Long: `Run a program only while this process is coordinator.

The program needs no change. It is started when the agent at CONCLAVE_AGENT, by
default http://127.0.0.1:7374, has been elected, and gets the variables
CONCLAVE_GROUP, CONCLAVE_MEMBER, CONCLAVE_TERM and CONCLAVE_TOKEN. Before another
process becomes coordinator, it gets SIGTERM, and everything that it has started
is killed if it is still there at the end of drainMillis, or of the lease.

SIGTERM, SIGINT and SIGQUIT end the program and this command. SIGHUP, SIGUSR1 and
SIGUSR2 are passed on. If the program ends by itself, so does this command, with
the same status (128 plus the number of a signal), and another process becomes
coordinator. The status is 126 or 127 if the program can't be run.`,
		Example: `  conclave-agent exec --group ledger -- /usr/bin/settle --all`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) == 0 {
				return command.UsageErrorf(
					"exec requires a command, as in: conclave-agent exec --group ledger -- COMMAND ARGUMENT...")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, arguments []string) error {
			if options.Group == "" {
				return command.UsageErrorf("exec requires --group, the name of the group whose coordinator runs the command")
			}
			options.Command, options.Log = arguments, logger(cmd.ErrOrStderr(), slog.LevelInfo)
			return programEnd(supervise.Run(cmd.Context(), options))
		},
	}
	cmd.Flags().StringVar(&options.Group, "group", "", "the group whose coordinator runs the command")
	cmd.Flags().BoolVar(&options.Restart, "restart", false,
		"start the program again when it ends by itself, after 0.1s to 30s, if no other process was elected")
	cmd.Flags().StringVar(&options.Prepare, "prepare", "",
		"a command for sh, which runs once this process is elected, while the lease of another one ends; the program "+
			"doesn't wait for it")
	cmd.Flags().StringVar(&options.AlsoLease, "also-lease", "",
		"NAME[/NAMESPACE] of a Lease that the program holds, too, while a rolling update replaces replicas that know it only")
	cmd.Flags().DurationVar(&options.LeaseDuration, "lease-duration", 15*time.Second,
		"the duration of that Lease, which is that of the other replicas")
	cmd.Flags().StringVar(&options.ServiceAccount, "service-account", "/var/run/secrets/kubernetes.io/serviceaccount",
		"the directory with the token and the CA for the API server, for --also-lease")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func programEnd(status int, err error) error {
	switch {
	case err != nil:
		return &execError{status, err}
	case status != 0:
		return programStatus(status)
	}
	return nil
}

// newGuard returns the command that exec runs as a process of its own: see package supervise.
func newGuard() *cobra.Command {
	var cgroup string
	var foreground bool
	cmd := &cobra.Command{
		Use:    "guard -- PATH COMMAND [ARGUMENT...]",
		Short:  "Kill a program when exec can't",
		Hidden: true,
		Args:   cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			log := logger(cmd.ErrOrStderr(), slog.LevelInfo)
			return programEnd(supervise.Guard(arguments[0], arguments[1:], cgroup, foreground, log))
		},
	}
	cmd.Flags().StringVar(&cgroup, "cgroup", "", "the cgroup for the program")
	cmd.Flags().BoolVar(&foreground, "foreground", false, "the program is in the foreground of the terminal")
	return cmd
}

// newInstall returns the command by which the webhook puts the agent's binary beside the program of another image.
func newInstall() *cobra.Command {
	return &cobra.Command{
		Use:    "install FILE",
		Short:  "Copy this binary to a file",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, arguments []string) error { return install(arguments[0]) },
	}
}

// install replaces the file, which may be running.
func install(path string) error {
	binary, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("cannot read the binary of this process: %w", err)
	}
	defer binary.Close()
	temporary := path + ".new"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, binary)
	if err = errors.Join(err, file.Chmod(0o755), file.Close()); err == nil { // Whatever the umask is.
		err = os.Rename(temporary, path)
	}
	return err
}
