package webhook_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/operator/serve/webhook"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

var apiServer = apiserver.New("../../../../config/crd/bases")

func TestMain(m *testing.M) { apiServer.Main(m) }

var settings = inject.Settings{AgentImage: "agent:1", IdentityURL: "https://conclave-identity.conclave-system.svc"}

// configuration returns the deployed webhook configuration, but with a URL instead of
// the Service, which the API server of a test cannot reach.
func configuration(t *testing.T, port int) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	text := must.ReadFile(t, "../../../../config/webhook/webhook.yaml")
	var config admissionregistrationv1.MutatingWebhookConfiguration
	must.Succeed(t, yaml.UnmarshalStrict(text, &config))
	for i := range config.Webhooks {
		url := "https://" + net.JoinHostPort("localhost", strconv.Itoa(port)) + *config.Webhooks[i].ClientConfig.Service.Path
		config.Webhooks[i].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url}
	}
	return &config
}

// groupsFrom reads groups from the API server, and passes them on one at a time.
func groupsFrom(c client.Client) func(context.Context, string, func([]v1.ElectionGroup)) error {
	return func(ctx context.Context, namespace string, use func([]v1.ElectionGroup)) error {
		var groups v1.ElectionGroupList
		err := c.List(ctx, &groups, client.InNamespace(namespace))
		for i := range slices.Backward(groups.Items) { // In another order than that of their names.
			use(groups.Items[i : i+1])
		}
		return err
	}
}

// serve starts the webhook and registers it with the API server.
func serve(t *testing.T) client.Client {
	t.Helper()
	c := testclient.New(t, apiServer.Config(t))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	store, err := authority.Open(t.Context(), c, "default", log, authority.Anyway)
	must.Succeed(t, err)
	certificate, err := store.NewServerCertificate("localhost")
	must.Succeed(t, err)
	port, err := testnet.FreePort()
	must.Succeed(t, err)
	webhooks := ctrlwebhook.NewServer(ctrlwebhook.Options{
		Host: "127.0.0.1", Port: port,
		TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.GetCertificate = certificate.GetCertificate }},
	})
	for path, namespaceOptedIn := range map[string]bool{webhook.Path: false, webhook.NamespacePath: true} {
		webhooks.Register(path, &admission.Webhook{Handler: &webhook.Injector{
			Log: log, Groups: groupsFrom(c), NamespaceOptedIn: namespaceOptedIn,
			Settings: func(context.Context) (inject.Settings, error) { return settings, nil },
		}})
	}
	config := configuration(t, port)
	must.Succeed(t, c.Create(t.Context(), config))
	publisher := &authority.WebhookPublisher{Store: store, Client: c, Name: config.Name, Log: log}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var parts sync.WaitGroup
	for _, start := range []func(context.Context) error{webhooks.Start, publisher.Start} {
		parts.Go(func() {
			expect.Succeed(t, start(ctx))
		})
	}
	t.Cleanup(func() {
		expect.Succeed(t, c.Delete(context.WithoutCancel(t.Context()), config))
		cancel()
		parts.Wait()
	})
	testwait.NoError(t, publisher.Ready)
	testwait.NoError(t, func() error { return webhooks.StartedChecker()(nil) })
	return c
}

// awaitWebhook waits until the API server applies the webhook configuration, which takes a moment.
func awaitWebhook(t *testing.T, c client.Client) {
	t.Helper()
	testwait.NoError(t, func() error {
		pod := podOf("probe", optedIn, ledger)
		if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err
		}
		if len(pod.Spec.InitContainers) == 0 {
			return errors.New("the API server hasn't called the webhook")
		}
		return nil
	})
}

func podOf(name string, labels, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels, Annotations: annotations},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", Containers: []corev1.Container{{Name: "application", Image: "none"}},
		},
	}
}

var (
	optedIn = map[string]string{v1.LabelAgent: v1.AgentEnabled}
	ledger  = map[string]string{v1.AnnotationGroups: "ledger"}
)

func TestPodThatOptedInGetsAgent(t *testing.T) {
	c := serve(t)
	awaitWebhook(t, c)
	in := podOf("in", optedIn, ledger)
	must.Succeed(t, c.Create(t.Context(), in))
	if agents := in.Spec.InitContainers; len(agents) != 1 || agents[0].Image != settings.AgentImage ||
		agents[0].RestartPolicy == nil || *agents[0].RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Errorf("got init containers %+v, want the agent as a sidecar", agents)
	}
	for name, pod := range map[string]*corev1.Pod{
		"out":      podOf("out", nil, nil),
		"out-bad":  podOf("out-bad", nil, map[string]string{v1.AnnotationGroups: "///"}),
		"disabled": podOf("disabled", map[string]string{v1.LabelAgent: "disabled"}, ledger),
	} {
		if err := c.Create(t.Context(), pod); err != nil || len(pod.Spec.InitContainers) > 0 {
			t.Errorf("%s: got error %v and init containers %v, want none", name, err, pod.Spec.InitContainers)
		}
	}
	for name, groups := range map[string]map[string]string{
		"blank": {v1.AnnotationGroups: ""}, "bad": {v1.AnnotationGroups: "Ledger"},
	} {
		err := c.Create(t.Context(), podOf(name, optedIn, groups))
		if !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "annotation conclave.dev/groups must name the groups") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got error %v, want a refusal of the annotation in one line", name, err)
		}
	}
}

// TestAgentPreservesGuaranteedQuality: the API server computes the quality of service from
// the containers of the pod, including the agent.
func TestAgentPreservesGuaranteedQuality(t *testing.T) {
	c := serve(t)
	awaitWebhook(t, c)
	for name, test := range map[string]struct {
		resources corev1.ResourceRequirements
		want      corev1.PodQOSClass
	}{
		"guaranteed": {corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		}}, corev1.PodQOSGuaranteed},
		"burstable": {
			corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			corev1.PodQOSBurstable,
		},
	} {
		pod := podOf(name, optedIn, ledger)
		pod.Spec.Containers[0].Resources = test.resources
		must.Succeed(t, c.Create(t.Context(), pod))
		if len(pod.Spec.InitContainers) != 1 || pod.Status.QOSClass != test.want {
			t.Errorf("%s: got quality of service %s with init containers %v, want %s with an agent", name, pod.Status.QOSClass,
				pod.Spec.InitContainers, test.want)
		}
	}
}

// request returns an admission request for the creation of a pod.
func request(pod *corev1.Pod) admission.Request {
	raw, err := yaml.Marshal(pod)
	if err == nil {
		raw, err = yaml.YAMLToJSON(raw)
	}
	if err != nil {
		panic(err)
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Operation: admissionv1.Create,
		Object: runtime.RawExtension{Raw: raw},
	}}
}

// Without a CA bundle, the webhook refuses only the pods that need one.
func TestPodsWithoutOptInAreAllowedDespiteErrors(t *testing.T) {
	injector := &webhook.Injector{
		Log: slog.New(slog.DiscardHandler),
		Settings: func(context.Context) (inject.Settings, error) {
			return inject.Settings{}, errors.New("no CA bundle")
		},
	}
	if got := injector.Handle(t.Context(), request(podOf("out", nil, ledger))); !got.Allowed ||
		len(got.Patches)+len(got.Patch) > 0 {
		t.Errorf("pod that didn't opt in: got %+v, want it allowed without a patch", got)
	}
	expect.Equalf(t, injector.Handle(t.Context(), request(podOf("in", optedIn, ledger))).Allowed, false,
		"a pod that opted in is allowed")
	other := request(podOf("in", optedIn, nil))
	other.Operation = admissionv1.Update
	expect.Equalf(t, injector.Handle(t.Context(), other).Allowed, true, "an update is allowed")
}

// By default, a pod with hostNetwork uses the node's DNS server, which doesn't resolve Services.
func TestWarningForHostNetworkWithoutClusterDNS(t *testing.T) {
	injector := &webhook.Injector{
		Log: slog.New(slog.DiscardHandler), Settings: func(context.Context) (inject.Settings, error) { return settings, nil },
	}
	pod := podOf("in", optedIn, ledger)
	pod.Spec.HostNetwork = true
	if got := injector.Handle(t.Context(), request(pod)); !got.Allowed || len(got.Warnings) != 1 ||
		!strings.Contains(got.Warnings[0], "ClusterFirstWithHostNet") {
		t.Errorf("hostNetwork: got %+v, want one warning", got)
	}
	pod.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	if got := injector.Handle(t.Context(), request(pod)); !got.Allowed || len(got.Warnings) != 0 {
		t.Errorf("hostNetwork with cluster DNS: got %+v, want no warning", got)
	}
}

// If the webhook of a mesh runs before this one, its proxy was configured without the exclusions.
func TestWarningForProxyThatWasAddedBefore(t *testing.T) {
	injector := &webhook.Injector{
		Log: slog.New(slog.DiscardHandler), Settings: func(context.Context) (inject.Settings, error) { return settings, nil },
	}
	pod := podOf("in", optedIn, ledger)
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "istio-init"})
	if got := injector.Handle(t.Context(), request(pod)); !got.Allowed || len(got.Patch) == 0 || len(got.Warnings) != 1 ||
		!strings.Contains(got.Warnings[0], "istio-init") {
		t.Errorf("Istio before Conclave: got %+v, want one warning", got)
	}
	pod.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "7373,7375"
	pod.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "7373"
	if got := injector.Handle(t.Context(), request(pod)); !got.Allowed || len(got.Warnings) != 0 {
		t.Errorf("the template excludes the ports: got %+v, want no warning", got)
	}
}
