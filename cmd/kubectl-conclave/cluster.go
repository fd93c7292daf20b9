package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/cli/command"
)

// cluster is the one that the usual flags of kubectl choose.
type cluster struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

// usual are the flags of kubectl that help is given on. The others are there, too.
var usual = []string{"context", "kubeconfig", "namespace"}

// register adds the flags of kubectl to a command.
func (c *cluster) register(flags *pflag.FlagSet) {
	c.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	own := pflag.NewFlagSet("cluster", pflag.ContinueOnError)
	clientcmd.BindOverrideFlags(&c.overrides, own, clientcmd.RecommendedConfigOverrideFlags(""))
	own.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "the kubeconfig file to use")
	own.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	for _, name := range usual {
		own.Lookup(name).Hidden = false
	}
	own.Lookup("namespace").Usage = "the namespace of the group"
	own.Lookup("context").Usage = "the context of the kubeconfig to use"
	flags.AddFlagSet(own)
}

func (c *cluster) chosen() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
}

// namespace is what the flag or the kubeconfig says.
func (c *cluster) namespace() (string, error) {
	namespace, _, err := c.chosen().Namespace()
	if err != nil {
		return "", fmt.Errorf("choose a cluster: %w", oneLine(err))
	}
	return namespace, nil
}

func (c *cluster) config() (*rest.Config, error) {
	config, err := c.chosen().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("choose a cluster: %w", oneLine(err))
	}
	config.UserAgent = "kubectl-conclave"
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// connect returns a client of the few kinds that this program asks for. They are
// known, so that the API server isn't asked for all that it has.
func (c *cluster) connect() (client.WithWatch, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	log.SetLogger(logr.Discard()) // or controller-runtime complains that nobody did
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		return nil, fmt.Errorf("know the API: %w", err)
	}
	if err := v1.AddToScheme(known); err != nil {
		return nil, fmt.Errorf("know the API: %w", err)
	}
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(v1.GroupVersion.WithKind("ElectionGroup"), meta.RESTScopeNamespace)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	connected, err := client.NewWithWatch(config, client.Options{Scheme: known, Mapper: kinds})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", oneLine(err))
	}
	return connected, nil
}

// group reads a group.
func group(ctx context.Context, c client.Client, namespace, name string) (*v1.ElectionGroup, error) {
	g := &v1.ElectionGroup{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, g); err != nil {
		if apierrors.IsNotFound(err) && !missingKind(err) {
			return nil, fmt.Errorf("there is no group %s in namespace %s: kubectl get electiongroups -A lists all", name, namespace)
		}
		return nil, refused(err)
	}
	named(g)
	return g, nil
}

// named has the object say of which kind it is, as kubectl shows it.
func named(g *v1.ElectionGroup) { g.SetGroupVersionKind(v1.GroupVersion.WithKind("ElectionGroup")) }

// missingKind: not the object isn't there but its whole kind.
func missingKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// refused says in one line what the API server, or the way to it, has against a request.
func refused(err error) error {
	if missingKind(err) {
		return fmt.Errorf("this cluster has no ElectionGroups: install Conclave first (%w)", oneLine(err))
	}
	if reached, ok := err.(*url.Error); ok { //nolint:errorlint // as client-go returns it, to leave out the URL
		return fmt.Errorf("reach the API server: %w", oneLine(reached.Err))
	}
	return oneLine(err)
}

// line is an error in one line.
type line struct {
	text string
	err  error
}

func (l *line) Error() string { return l.text }
func (l *line) Unwrap() error { return l.err }

func oneLine(err error) error {
	text := err.Error()
	if joined := strings.Join(strings.Fields(text), " "); joined != text {
		return &line{joined, err}
	}
	return err
}

// oneGroup takes the name of a group, and nothing else.
func oneGroup(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return command.UsageErrorf("name a group, as in: %s ledger", cmd.CommandPath())
	}
	return command.UsageErrorf("%s takes one group, not %d: leave out %q", cmd.CommandPath(), len(args), args[1])
}
