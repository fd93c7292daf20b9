// Package webhook is the mutating admission webhook. When a pod that opted in is
// created, it responds to the API server with a patch that adds the agent.
//
// The patch itself is in package inject. The two are separate because the kubectl
// plugin imports inject, too, to check annotations, and must not link an admission server.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// The URL paths of the webhook: for pods that have opted in by their label, and for pods
// without a label in namespaces that have opted in.
const (
	Path          = "/inject"
	NamespacePath = "/inject-namespace"
)

// Injector adds the agent to pods. It allows each pod that didn't opt in, even if the
// pod is invalid or the operator has a fault.
type Injector struct {
	// Settings returns the current settings. It is called for each pod, because the CA bundle changes.
	Settings func(context.Context) (inject.Settings, error)
	// Cached passes on the groups of a namespace, as far as the cache has them. It may fail,
	// and nil means that there is no cache.
	Cached func(ctx context.Context, namespace string, use func([]v1.ElectionGroup)) error
	// Groups passes on the groups of a namespace, some at a time. They must be current: often,
	// a group is created a moment before its pods. It is called if the cache has no group that
	// selects the pod. If it has one, the operator adds groups that the cache lacks later.
	Groups func(ctx context.Context, namespace string, use func([]v1.ElectionGroup)) error
	// NamespaceOptedIn means that all pods are in namespaces that have opted in.
	NamespaceOptedIn bool
	Log              *slog.Logger
	// Count, if it isn't nil, is called with the result of each request that isn't a dry run.
	Count func(Result)
}

// Result is the outcome of an admission request.
type Result string

// The results.
const (
	Injected  Result = "injected"
	Unchanged Result = "unchanged" // The pod didn't opt in, or has an agent already.
	Refused   Result = "refused"   // The pod is invalid.
	Failed    Result = "failed"    // The operator can't read the groups or the CA.
)

// Metric counts admission requests.
type Metric struct{ *prometheus.CounterVec }

// NewMetric returns a Metric. All results have the value 0 from the beginning, so that the first
// refusal is an increase.
func NewMetric() Metric {
	m := Metric{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "conclave_operator_injections_total",
		Help: "Requests of the API server to inject an agent into a new pod, by result.",
	}, []string{"result"})}
	for _, result := range []Result{Injected, Unchanged, Refused, Failed} {
		m.WithLabelValues(string(result))
	}
	return m
}

// Count counts an admission request: see Injector.Count.
func (m Metric) Count(result Result) { m.WithLabelValues(string(result)).Inc() }

// Handle responds to an admission request.
func (i *Injector) Handle(ctx context.Context, request admission.Request) admission.Response {
	response := i.respond(ctx, request)
	if i.Count != nil && (request.DryRun == nil || !*request.DryRun) {
		i.Count(resultOf(response))
	}
	return response
}

func resultOf(response admission.Response) Result {
	switch {
	case response.Allowed && len(response.Patch) > 0:
		return Injected
	case response.Allowed:
		return Unchanged
	case response.Result != nil && response.Result.Code < http.StatusInternalServerError:
		return Refused
	}
	return Failed
}

func (i *Injector) respond(ctx context.Context, request admission.Request) admission.Response {
	if request.Kind.Kind != "Pod" || request.Kind.Group != "" || request.SubResource != "" ||
		request.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	pod := request.Object.Raw
	choice, err := inject.ChoiceOf(pod, i.NamespaceOptedIn)
	if err != nil {
		return i.refuse(request, err)
	}
	if choice == inject.NoAgent {
		return admission.Allowed("")
	}
	var selecting []string
	if choice == inject.SelectedGroups {
		if selecting, err = i.selectingGroups(ctx, request); err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if i.NamespaceOptedIn && len(selecting) == 0 {
			return admission.Allowed("")
		}
	}
	settings, settingsErr := i.Settings(ctx)
	patch, err := inject.Patch(pod, choice, selecting, settings)
	switch {
	case err != nil:
		return i.refuse(request, err)
	case len(patch) == 0:
		return admission.Allowed("")
	case settingsErr != nil:
		return admission.Errored(http.StatusInternalServerError, settingsErr)
	}
	warnings := podWarnings(pod)
	if choice == inject.SelectedGroups && len(selecting) == 0 {
		warnings = append(warnings,
			"no ElectionGroup in namespace "+request.Namespace+" selects this pod: its agent waits for one")
	}
	return patched(patch, warnings)
}

func (i *Injector) refuse(request admission.Request, err error) admission.Response {
	i.Log.Info("refused pod", "namespace", request.Namespace, "name", request.Name, "error", err)
	return admission.Denied(err.Error())
}

// selectingGroups returns the groups that select a pod.
func (i *Injector) selectingGroups(ctx context.Context, request admission.Request) (names []string, err error) {
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(request.Object.Raw, &meta); err != nil {
		return nil, fmt.Errorf("decode the pod: %w", err)
	}
	pod := &corev1.Pod{ObjectMeta: meta.ObjectMeta}
	add := func(groups []v1.ElectionGroup) { names = append(names, membership.SelectingGroups(groups, pod)...) }
	if i.Cached == nil || i.Cached(ctx, request.Namespace, add) != nil || len(names) == 0 {
		names = nil
		if err := i.Groups(ctx, request.Namespace, add); err != nil {
			return nil, fmt.Errorf("list the groups of namespace %s: %w", request.Namespace, err)
		}
	}
	slices.Sort(names)
	return names, nil
}

func patched(patch []inject.Operation, warnings []string) admission.Response {
	raw, err := json.Marshal(patch)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed: true, Patch: raw, PatchType: new(admissionv1.PatchTypeJSONPatch), Warnings: warnings,
	}}
}

// podWarnings returns warnings about what will not work in a pod.
func podWarnings(raw []byte) (warnings []string) {
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		return nil // The API server reports invalid pods.
	}
	if pod.Spec.HostNetwork && pod.Spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
		warnings = append(warnings, "a pod with hostNetwork must have dnsPolicy: ClusterFirstWithHostNet, otherwise its "+
			"agent cannot resolve conclave-identity")
	}
	if proxy := inject.Interception(&pod); proxy != "" {
		// It has read the annotations of the pod before this patch adds the exclusions.
		warnings = append(warnings, proxy+" was added before the agent's ports were excluded, and may intercept them: set "+
			"the annotations in the pod template (docs/install.md, Service meshes)")
	}
	return warnings
}
