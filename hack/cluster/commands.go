package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/hack/cluster/internal/binaries"
	"github.com/conclave-dev/conclave/hack/cluster/internal/lifecycle"
	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
)

// errReported marks the error of a program that has already written it to the terminal.
var errReported = errors.New("the command failed")

// printf prints a line of progress to standard error. Standard output is for results that scripts read.
func printf(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
}

// newCommand returns the root command.
func newCommand() *cobra.Command {
	var name string
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "Run a throwaway Kubernetes cluster with several nodes on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&name, "name", "conclave", "name of the cluster; clusters with different names can run side by side")
	open := func() (lifecycle.Cluster, error) { return openCluster(name) }
	root.AddCommand(
		upCommand(open),
		&cobra.Command{
			Use: "down", Short: "Stop the cluster and remove everything of it", Args: cobra.NoArgs,
			RunE: asRoot(open, func(ctx context.Context, c lifecycle.Cluster, _ []string) error { return c.Down(ctx) }),
		},
		&cobra.Command{
			Use: "status", Short: "Print which machines are running", Args: cobra.NoArgs,
			RunE: onCluster(open, func(_ context.Context, c lifecycle.Cluster, _ []string) error {
				lines, err := c.Status()
				for _, line := range lines {
					fmt.Println(line)
				}
				return err
			}),
		},
		&cobra.Command{
			Use: "load IMAGE.tar", Short: "Load an image on every running node", Args: cobra.ExactArgs(1),
			RunE: asRoot(open, func(ctx context.Context, c lifecycle.Cluster, arguments []string) error {
				return c.Load(ctx, arguments[0])
			}),
		},
		machineCommand(open, "partition", "Disconnect a machine from the others", lifecycle.Cluster.Partition),
		machineCommand(open, "heal", "Reconnect a machine", lifecycle.Cluster.Heal),
		machineCommand(open, "kill", "Stop a machine as a power failure does", lifecycle.Cluster.Kill),
		machineCommand(open, "start", "Start a machine that was killed", lifecycle.Cluster.Start),
		kubectlCommand(open),
		&cobra.Command{
			Use: "check", Short: "Fail with one line that lists what this machine lacks for a cluster", Args: cobra.NoArgs,
			RunE: asRoot(open, func(_ context.Context, c lifecycle.Cluster, _ []string) error {
				if err := c.Check(); err != nil {
					return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
				}
				return nil
			}),
		},
		assetsCommand(),
		buildCommand(),
	)
	root.AddCommand(innerCommands()...)
	return root
}

type opener func() (lifecycle.Cluster, error)

func openCluster(name string) (lifecycle.Cluster, error) {
	if err := topology.CheckName(name); err != nil {
		return lifecycle.Cluster{}, err
	}
	if runtime.GOOS != "linux" {
		return lifecycle.Cluster{}, fmt.Errorf("a cluster needs Linux namespaces: the operating system must be linux, got %s", runtime.GOOS)
	}
	cache, err := openCache()
	if err != nil {
		return lifecycle.Cluster{}, err
	}
	return lifecycle.Open(name, cache, printf), nil
}

func openCache() (binaries.Cache, error) {
	working, err := os.Getwd()
	if err != nil {
		return binaries.Cache{}, fmt.Errorf("cannot find the working folder: %w", err)
	}
	top, err := binaries.FindRoot(working)
	if err != nil {
		return binaries.Cache{}, err
	}
	directory, err := binaries.DefaultDirectory()
	if err != nil {
		return binaries.Cache{}, err
	}
	return binaries.Cache{Root: top, Directory: directory, Printf: printf}, nil
}

// asRoot returns the RunE function of a command that needs root. It checks the user first, because other checks may fail
// only for lack of permissions.
func asRoot(open opener, do func(context.Context, lifecycle.Cluster, []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, arguments []string) error {
		if os.Geteuid() != 0 {
			return fmt.Errorf("%s needs root to create namespaces and cgroups: run it with sudo", command.Name())
		}
		return onCluster(open, do)(command, arguments)
	}
}

func onCluster(open opener, do func(context.Context, lifecycle.Cluster, []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, arguments []string) error {
		cluster, err := open()
		if err != nil {
			return err
		}
		return do(command.Context(), cluster, arguments)
	}
}

func upCommand(open opener) *cobra.Command {
	var nodes int
	command := &cobra.Command{
		Use: "up", Short: "Start the cluster, or the machines of it that aren't running", Args: cobra.NoArgs,
		Long: "Create the cluster, or start the machines of it that aren't running. Prints a shell command that sets KUBECONFIG:\n\n" +
			`    eval "$(go run ./hack/cluster up --nodes 3)"`,
		RunE: asRoot(open, func(ctx context.Context, c lifecycle.Cluster, _ []string) error {
			if err := c.Up(ctx, nodes); err != nil {
				return err
			}
			fmt.Println("export KUBECONFIG=" + c.Kubeconfig())
			return nil
		}),
	}
	command.Flags().IntVar(&nodes, "nodes", 3, "minimum number of nodes; 0 means only the control plane")
	return command
}

func machineCommand(
	open opener, verb, short string, do func(lifecycle.Cluster, context.Context, string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NODE", Short: short, Args: cobra.ExactArgs(1),
		Long: short + ": node-1, node-2, ... or " + topology.ControlPlaneName + ".",
		RunE: asRoot(open, func(ctx context.Context, c lifecycle.Cluster, arguments []string) error {
			return do(c, ctx, arguments[0])
		}),
	}
}

func kubectlCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use: "kubectl -- ARGUMENTS", Short: "Run the cluster's kubectl with its kubeconfig",
		RunE: onCluster(open, func(ctx context.Context, c lifecycle.Cluster, arguments []string) error {
			if err := c.Exists(); err != nil {
				return err
			}
			directory, err := c.Cache.Get(ctx, binaries.Kubernetes)
			if err != nil {
				return err
			}
			kubectl := exec.CommandContext(ctx, filepath.Join(directory, "kubectl"), arguments...)
			kubectl.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
			kubectl.Stdin, kubectl.Stdout, kubectl.Stderr = os.Stdin, os.Stdout, os.Stderr
			if err := kubectl.Run(); err != nil {
				return errors.Join(errReported, err)
			}
			return nil
		}),
	}
}

func assetsCommand() *cobra.Command {
	var ifBuilt bool
	command := &cobra.Command{
		Use: "assets", Short: "Print the folder of etcd, kube-apiserver and kubectl, for KUBEBUILDER_ASSETS", Args: cobra.NoArgs,
		Long: "Print the folder of etcd, kube-apiserver and kubectl. Builds them if necessary. Doesn't need root.\n\n" +
			`    export KUBEBUILDER_ASSETS="$(go run ./hack/cluster assets)"`,
		RunE: func(command *cobra.Command, _ []string) error {
			cache, err := openCache()
			if err != nil {
				return err
			}
			if _, built, err := cache.Folder(binaries.Kubernetes); ifBuilt && !built {
				return err
			}
			directory, err := cache.Get(command.Context(), binaries.Kubernetes)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), directory)
			return err
		},
	}
	command.Flags().BoolVar(&ifBuilt, "if-built", false, "print nothing if they aren't built yet")
	return command
}

func buildCommand() *cobra.Command {
	var forKind bool
	command := &cobra.Command{
		Use: "build", Short: "Build the programs of a cluster that aren't in the cache", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			cache, err := openCache()
			if err != nil {
				return err
			}
			components := append([]binaries.Component{binaries.Kubernetes}, binaries.NodeComponents...)
			folders, err := cache.GetAll(command.Context(), components...)
			if err != nil || !forKind {
				return err
			}
			// Afterwards, because nearly all of its packages are those of Kubernetes.
			if folders[binaries.Kubeadm.Name], err = cache.Get(command.Context(), binaries.Kubeadm); err != nil {
				return err
			}
			for _, name := range slices.Sorted(maps.Keys(folders)) {
				fmt.Println(name, folders[name])
			}
			return nil
		},
	}
	command.Flags().BoolVar(&forKind, "kind", false, "also build kubeadm, and print the folder of each program, for hack/kind")
	return command
}

// innerCommands returns the internal commands, which this program runs itself.
func innerCommands() []*cobra.Command {
	var commands []*cobra.Command
	for name, run := range map[string]func(string) error{
		machine.LauncherCommand: machine.Launch,
		machine.InitCommand:     machine.Init,
		machine.ProbeCommand:    machine.RunProbe,
	} {
		commands = append(commands, &cobra.Command{
			Use: name, Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, arguments []string) error { return run(arguments[0]) },
		})
	}
	return commands
}
