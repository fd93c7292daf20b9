package main

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/conclave-dev/conclave/internal/cli/command"
)

// version is stamped by make build.
var version string

// options are the flags.
type options struct {
	namespace           string
	agentImage          string
	leaderElect         bool
	metricsAddress      string
	healthAddress       string
	webhookPort         int
	identityPort        int
	webhookCertificates string
	logLevel            string
	logFormat           string
}

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "conclave-manager",
		Short: "Run Conclave's operator",
		Long: `Conclave elects the coordinator among pods.

This operator puts an agent into each pod that opts in, gives agents their
certificates and the members of their groups, and shows in each ElectionGroup
what the agents agree on. Agents elect without it.`,
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
	o.add(root)
	root.SetFlagErrorFunc(command.ExplainFlag)
	root.AddCommand(command.Version(version))
	return root
}

func (o *options) add(root *cobra.Command) {
	flags := root.Flags()
	flags.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the manager's own namespace; by default $POD_NAMESPACE")
	flags.StringVar(&o.agentImage, "agent-image", os.Getenv("AGENT_IMAGE"), "image of the agent that is put into pods; by default $AGENT_IMAGE")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "of several replicas, have one write; all of them answer pods")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8443", "where metrics are served, by HTTPS and to those who may read them; 0 for nowhere")
	flags.StringVar(&o.healthAddress, "health-address", ":8081", "where /healthz and /readyz are served")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "port of the webhook that puts agents into pods")
	flags.IntVar(&o.identityPort, "identity-port", 9444, "port of the service that gives agents their certificates")
	flags.StringVar(&o.webhookCertificates, "webhook-certificates", "", "folder with the webhook's tls.crt and tls.key, if cert-manager makes them; by default the manager does")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or text")
}

// check says what is missing before anything is started.
func (o *options) check() error {
	switch {
	case o.namespace == "":
		return command.UsageErrorf("--namespace must be the manager's own namespace: it isn't in $POD_NAMESPACE")
	case len(validation.IsDNS1123Label(o.namespace)) > 0:
		return command.UsageErrorf("--namespace must be the name of a namespace, not %q", o.namespace)
	case strings.TrimSpace(o.agentImage) == "":
		return command.UsageErrorf("--agent-image must be the image of the agent: it isn't in $AGENT_IMAGE")
	}
	if err := o.checkPorts(); err != nil {
		return err
	}
	if o.webhookCertificates == "" {
		return nil
	}
	for _, file := range []string{"tls.crt", "tls.key"} {
		if _, err := os.Stat(filepath.Join(o.webhookCertificates, file)); err != nil {
			return command.UsageErrorf("--webhook-certificates must be a folder with tls.crt and tls.key: %s", err)
		}
	}
	return nil
}

func (o *options) checkPorts() error {
	for name, port := range map[string]int{"webhook-port": o.webhookPort, "identity-port": o.identityPort} {
		if port < 1 || port > 65535 {
			return command.UsageErrorf("--%s must be a port from 1 to 65535, not %d", name, port)
		}
	}
	if o.webhookPort == o.identityPort {
		return command.UsageErrorf("--webhook-port and --identity-port must be two, not both %d", o.webhookPort)
	}
	return nil
}

func (o *options) logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, command.UsageErrorf("--log-level must be debug, info, warn or error, not %q", o.logLevel)
	}
	settings := &slog.HandlerOptions{Level: level}
	switch cmp.Or(o.logFormat, "json") {
	case "json":
		return slog.New(slog.NewJSONHandler(out, settings)), nil
	case "text":
		return slog.New(slog.NewTextHandler(out, settings)), nil
	}
	return nil, command.UsageErrorf("--log-format must be json or text, not %q", o.logFormat)
}
