package clusteraccess

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/command"
)

// Flags are kubectl's flags that select a cluster, a namespace and the user's credentials.
type Flags struct {
	config *genericclioptions.ConfigFlags
	clusterClock
}

// documentedFlags appear in help texts, with this usage. The other flags work as
// in kubectl but are hidden, or they would outnumber those of the command.
var documentedFlags = map[string]string{
	clientcmd.RecommendedConfigPathFlag: "path to the kubeconfig file",
	clientcmd.FlagContext:               "the kubeconfig context to use",
	clientcmd.FlagNamespace:             "the namespace of the group",
}

// AddTo adds the flags to those of a command, with shell completions for their values.
func (c *Flags) AddTo(cmd *cobra.Command) {
	c.config = genericclioptions.NewConfigFlags(true).WithWrapConfigFn(c.adjust)
	c.config.CacheDir = nil // for discovery, which no command uses
	own := pflag.NewFlagSet("cluster", pflag.ContinueOnError)
	c.config.AddFlags(own)
	own.VisitAll(func(f *pflag.Flag) {
		usage, documented := documentedFlags[f.Name]
		f.Hidden = !documented
		if documented {
			f.Usage = usage
		}
	})
	cmd.Flags().AddFlagSet(own)
	command.CompleteFile(cmd, clientcmd.RecommendedConfigPathFlag)
	command.CompleteWith(cmd, clientcmd.FlagContext, c.completeContext)
	command.CompleteWith(cmd, clientcmd.FlagNamespace, c.completeNamespace)
}

// completeContext proposes the contexts of the kubeconfig.
func (c *Flags) completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := c.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// completeNamespace proposes the namespaces of the cluster.
func (c *Flags) completeNamespace(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	connected, err := c.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var list corev1.NamespaceList
	if err := connected.List(cmd.Context(), &list); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (c *Flags) adjust(config *rest.Config) *rest.Config {
	config.UserAgent = "kubectl-conclave"
	config.QPS, config.Burst = 50, 300 // Those of kubectl.
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(c.readFrom)
	return config
}

// Namespace returns the namespace of the flag or of the kubeconfig context.
func (c *Flags) Namespace() (string, error) {
	namespace, _, err := c.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("cannot select a cluster: %w", command.SingleLine(err))
	}
	return namespace, nil
}

// RestConfig returns the configuration of clients of the selected cluster.
func (c *Flags) RestConfig() (*rest.Config, error) {
	if c.noClusterSelected() {
		if path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); path != "" {
			return nil, fmt.Errorf(
				"cannot select a cluster: the environment variable KUBECONFIG names no existing file, or one without a cluster: %q",
				path)
		}
		return nil,
			errors.New("cannot select a cluster: no kubeconfig found; set --kubeconfig or the environment variable KUBECONFIG")
	}
	config, err := c.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot select a cluster: %w", command.SingleLine(err))
	}
	return config, nil
}

// noClusterSelected reports whether neither a flag nor a kubeconfig nor the
// environment names an API server. ConfigFlags then tries http://localhost:8080.
func (c *Flags) noClusterSelected() bool {
	raw, err := c.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil || !clientcmdapi.IsConfigEmpty(&raw) || *c.config.APIServer != "" ||
		clientcmd.ClusterDefaults.Server != localServer {
		return false
	}
	_, err = rest.InClusterConfig()
	return err != nil
}

// localServer is client-go's default API server where the environment variable KUBERNETES_MASTER names no other.
const localServer = "http://localhost:8080"

// Connect returns a client for the few kinds that this program reads. Their
// resources are known in advance, so the client needs no discovery requests.
func (c *Flags) Connect() (client.WithWatch, error) {
	config, err := c.RestConfig()
	if err != nil {
		return nil, err
	}
	log.SetLogger(logr.Discard()) // Otherwise, controller-runtime warns that no logger was set.
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), v1.AddToScheme(types)); err != nil {
		return nil, fmt.Errorf("cannot register the API types: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1.GroupVersion.WithKind("ElectionGroup"), meta.RESTScopeNamespace)
	for kind, group := range map[string]schema.GroupVersion{
		"Pod": corev1.SchemeGroupVersion, "EndpointSlice": discoveryv1.SchemeGroupVersion,
		"StatefulSet": appsv1.SchemeGroupVersion, "Deployment": appsv1.SchemeGroupVersion,
		"DaemonSet":  appsv1.SchemeGroupVersion,
		"ReplicaSet": appsv1.SchemeGroupVersion, "NetworkPolicy": networkingv1.SchemeGroupVersion,
		"Lease": coordinationv1.SchemeGroupVersion,
	} {
		mapper.Add(group.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), meta.RESTScopeRoot)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	connected, err := client.NewWithWatch(config, client.Options{Scheme: types, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the cluster: %w", command.SingleLine(err))
	}
	return connected, nil
}
