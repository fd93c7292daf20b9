// Package dashboard is the command kubectl conclave dashboard, which serves a web page for its user.
package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/dashboard"
)

// defaultPort is the default port of the dashboard.
const defaultPort = 7377

type options struct {
	cluster clusteraccess.Flags
	port    int
	grafana string
}

// New returns the command.
func New() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve a web page with all groups on this machine",
		Long: `Serve a live web page with all groups: their coordinators, members, problems and
tenures.

The server listens on 127.0.0.1 only, and has your permissions. If you may
forward ports to pods, the page of a group also shows the last election and the
connections of clients that agents carry, and has the button Step down; nothing
else changes anything. Other users of this machine can read the page while it
runs; the key in the address keeps them from all three.

Permissions: list and watch electiongroups; for these three, create
pods/portforward.`,
		Example: `  kubectl conclave dashboard
  kubectl conclave dashboard --namespace bank --port 8080`,
		Args: command.NoArguments,
		RunE: o.run,
	}
	o.cluster.AddTo(cmd)
	cmd.Flags().Lookup(clientcmd.FlagNamespace).Usage = "show only the groups of this namespace"
	cmd.Flags().IntVar(&o.port, "port", defaultPort, "the port on 127.0.0.1; 0 selects a free one")
	cmd.Flags().StringVar(&o.grafana, "grafana", "",
		"the address of a Grafana with the dashboards of Conclave, to which the page of a group links")
	return cmd
}

func (o *options) run(cmd *cobra.Command, _ []string) error {
	const portMax = 65535
	if o.port < 0 || o.port > portMax {
		return command.UsageErrorf("--port must be between 0 and %d, got %d", portMax, o.port)
	}
	grafana, err := parseGrafana(o.grafana)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	connected, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	namespace := ""
	if cmd.Flags().Changed(clientcmd.FlagNamespace) {
		if namespace, err = o.cluster.Namespace(); err != nil {
			return err
		}
	}
	if err := checkAccess(ctx, connected, namespace); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(o.port)))
	if err != nil {
		return fmt.Errorf("cannot listen: %w; select another port with --port, or 0 for a free one", err)
	}
	store := dashboard.NewStore()
	store.Now = o.cluster.Now
	forward, err := o.cluster.Forwarder()
	if err != nil {
		return err
	}
	actions := NewActions(cmd.OutOrStdout(), connected, forward)
	go store.WatchOperator(ctx, connected)
	fmt.Fprintf(cmd.OutOrStdout(), "The dashboard is at http://%s/#key=%s until you press Ctrl-C.\n",
		listener.Addr(), actions.Key)
	go store.Watch(ctx, connected, namespace)
	return serve(ctx, listener, func(port int) http.Handler { return dashboard.NewHandler(store, port, actions, grafana) })
}

// parseGrafana checks the address of a Grafana, which may be empty, and returns it without a slash at the end.
func parseGrafana(address string) (string, error) {
	u, err := url.Parse(address)
	valid := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
	if address != "" && (!valid || u.RawQuery != "" || u.Fragment != "") {
		const want = "the address of Grafana, such as https://grafana.example.org"
		return "", command.UsageErrorf("--grafana must be %s, got %q", want, address)
	}
	return strings.TrimSuffix(address, "/"), nil
}

// checkAccess lists one group, so that a missing permission is reported at the start.
func checkAccess(ctx context.Context, c client.Client, namespace string) error {
	var list v1.ElectionGroupList
	err := c.List(ctx, &list, client.InNamespace(namespace), client.Limit(1))
	if apierrors.IsForbidden(err) && namespace == "" {
		return fmt.Errorf("%w; to show the groups of one namespace, set --namespace", clusteraccess.RequestError(err))
	}
	if err != nil {
		return clusteraccess.RequestError(err)
	}
	return nil
}

// serve serves until the context ends.
func serve(ctx context.Context, listener net.Listener, handler func(port int) http.Handler) error {
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("cannot serve on %s", listener.Addr())
	}
	const headerTimeout, headerMax = 10 * time.Second, 16 << 10
	server := &http.Server{Handler: handler(address.Port), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: headerMax}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() }) // The error is that of closing the listener.
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
