package main

import (
	"log/slog"
	"net"
	"net/netip"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/dashboard"
)

// version is stamped by make build.
var version string

// audience is that of the tokens of users. A token for it is of no use elsewhere.
const audience = "dashboard.conclave.dev"

// options are the flags.
type options struct {
	address      string
	certificates string
	hosts        []string
	audiences    []string
	grafana      string
}

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "conclave-dashboard",
		Short: "Serve Conclave's dashboard to the users of a cluster",
		Long: `Serve a live web page with the election groups of a cluster, read-only.

Users log in with a bearer token, or a proxy sends it with each request. The API
server decides who they are and which groups they may see.`,
		Args:              command.NoArguments,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return serve(ctx, o, slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil)))
		},
	}
	o.add(root)
	root.SetFlagErrorFunc(command.ExplainFlag)
	root.AddCommand(command.Version(version))
	return root
}

func (o *options) add(root *cobra.Command) {
	flags := root.Flags()
	flags.StringVar(&o.address, "address", ":8443", "address to listen on; without --certificates, it must be a loopback address")
	flags.StringVar(&o.certificates, "certificates", "", "folder with tls.crt and tls.key, which may be replaced while the server runs; without it, the server uses plain HTTP, for a proxy in the same pod")
	flags.StringSliceVar(&o.hosts, "host", nil, "a name or address by which users reach the server, without the port; may be repeated")
	flags.StringSliceVar(&o.audiences, "audience", []string{audience}, "an audience that tokens may be for; may be repeated. With --audience= they must be for the API server, which gives this server all rights of its users")
	flags.StringVar(&o.grafana, "grafana", "", "the address of a Grafana with the dashboards of Conclave, to which the page of a group links")
}

// check validates the options.
func (o *options) check() error {
	host, _, err := net.SplitHostPort(o.address)
	if err != nil {
		return command.UsageErrorf("--address must be HOST:PORT or :PORT, got %q", o.address)
	}
	if o.certificates == "" {
		if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
			return command.UsageErrorf("--certificates must be set, or --address must be a loopback address such as 127.0.0.1:8080: tokens must not cross the network without TLS; got %q", o.address)
		}
	} else if err := command.CheckCertificates("certificates", o.certificates); err != nil {
		return err
	}
	if len(o.hosts) == 0 {
		return command.UsageErrorf("--host must be set to the names by which users reach the server, such as --host conclave.example.org")
	}
	for i, host := range o.hosts {
		o.hosts[i] = strings.ToLower(host)
		if _, err := netip.ParseAddr(host); err != nil && len(validation.IsDNS1123Subdomain(o.hosts[i])) > 0 {
			return command.UsageErrorf("--host must be a host name or an IP address, without a port, got %q", host)
		}
	}
	if o.grafana, err = dashboard.ParseGrafana(o.grafana); err != nil {
		return command.UsageErrorf("%s", err)
	}
	return nil
}
