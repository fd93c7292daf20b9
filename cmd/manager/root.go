package main

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
)

// version is stamped by make build.
var version string

// options are the flags.
type options struct {
	agent            inject.Options
	agentPullSecrets []string
	metricsAddress   string
	healthAddress    string
	webhookPort      int
	identityPort     int
	maxGroups        int
	logLevel         string
	// Environment variables of the pod. podName is empty outside of a cluster.
	namespace, agentImage, podName string
}

func newRoot() *cobra.Command {
	o := options{agent: inject.Options{}}
	root := &cobra.Command{
		Use:   "conclave-manager",
		Short: "Run Conclave's operator",
		Long: `Conclave elects the coordinator among pods.

This operator injects an agent into each pod that opts in, issues the agents'
certificates, publishes the members of their groups, and reports the state of
each group in its ElectionGroup. Agents elect without it.

Environment variables: POD_NAMESPACE (its namespace), POD_NAME (optional) and
AGENT_IMAGE (the image that it injects).`,
		Args:              command.NoArguments,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			log, err := o.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return manage(ctx, o, log)
		},
	}
	o.namespace, o.agentImage, o.podName = os.Getenv("POD_NAMESPACE"), os.Getenv("AGENT_IMAGE"), os.Getenv("POD_NAME")
	o.add(root)
	root.SetFlagErrorFunc(command.ExplainFlag)
	root.AddCommand(command.Version(version), newCheckUninstall())
	return root
}

func (o *options) add(root *cobra.Command) {
	flags := root.Flags()
	for _, f := range o.agent.Flags() {
		flags.Var(f, f.Name, f.Usage)
	}
	flags.StringSliceVar(&o.agentPullSecrets, "agent-image-pull-secrets", nil, "Secrets, separated by commas, that the "+
		"webhook adds to the imagePullSecrets of pods; they must exist in the namespaces of the pods")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8443",
		"address that serves metrics, by HTTPS and to authorized clients; 0 to disable")
	flags.StringVar(&o.healthAddress, "health-address", ":8081", "address that serves /healthz and /readyz")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "port of the webhook that injects agents")
	flags.IntVar(&o.identityPort, "identity-port", 9444,
		"port of the identity service, which issues the agents' certificates")
	flags.IntVar(&o.maxGroups, "max-groups-per-namespace", maxGroups(os.Getenv("MEMORY_LIMIT")),
		"how many groups of a namespace the operator serves; 0 for all; by default two for each MiB of its memory limit")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

// check validates the options.
func (o *options) check() error {
	switch {
	case o.namespace == "":
		return command.UsageErrorf("the environment variable POD_NAMESPACE must be the manager's namespace, and is empty")
	case len(validation.IsDNS1123Label(o.namespace)) > 0:
		return command.UsageErrorf("the environment variable POD_NAMESPACE must be a valid namespace name, got %q",
			o.namespace)
	case strings.TrimSpace(o.agentImage) == "":
		return command.UsageErrorf("the environment variable AGENT_IMAGE must be the agent's image, and is empty")
	}
	if o.maxGroups < 0 {
		return command.UsageErrorf("--max-groups-per-namespace must be 0 or more, got %d", o.maxGroups)
	}
	if err := o.checkAgent(); err != nil {
		return err
	}
	return o.checkPorts()
}

func (o *options) checkAgent() error {
	for _, name := range o.agentPullSecrets {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return command.UsageErrorf("--agent-image-pull-secrets must be names of Secrets, separated by commas, got %q", name)
		}
	}
	if err := o.agent.Check(); err != nil {
		return command.UsageErrorf("%s", err)
	}
	return nil
}

func (o *options) checkPorts() error {
	for name, port := range map[string]int{"webhook-port": o.webhookPort, "identity-port": o.identityPort} {
		if port < 1 || port > 65535 {
			return command.UsageErrorf("--%s must be a port from 1 to 65535, got %d", name, port)
		}
	}
	if o.webhookPort == o.identityPort {
		return command.UsageErrorf("--webhook-port and --identity-port must be different, got %d for both", o.webhookPort)
	}
	return nil
}

func (o *options) logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, command.UsageErrorf("--log-level must be debug, info, warn or error, got %q", o.logLevel)
	}
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level})), nil
}
