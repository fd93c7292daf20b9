// Package webhook is the mutating admission webhook. When a pod that opted in is
// created, it responds to the API server with a patch that adds the agent.
//
// The patch itself is in package inject. The two are separate because the kubectl
// plugin imports inject, too, and must not link an admission server.
package webhook

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/conclave-dev/conclave/internal/operator/inject"
)

// Path is the URL path of the webhook.
const Path = "/inject"

// Injector adds the agent to pods. It allows each pod that didn't opt in, even if the
// pod is invalid or the operator has a fault.
type Injector struct {
	// Settings returns the current settings. It is called for each pod, because the
	// CA bundle changes.
	Settings func(context.Context) (inject.Settings, error)
	Log      *slog.Logger
}

// Handle responds to an admission request.
func (i *Injector) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.Kind.Kind != "Pod" || request.Kind.Group != "" || request.SubResource != "" || request.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	settings, settingsErr := i.Settings(ctx)
	patch, err := inject.Patch(request.Object.Raw, settings)
	switch {
	case err != nil:
		i.Log.Info("refused pod", "namespace", request.Namespace, "name", request.Name, "error", err)
		return admission.Denied(err.Error())
	case len(patch) == 0:
		return admission.Allowed("")
	case settingsErr != nil:
		return admission.Errored(http.StatusInternalServerError, settingsErr)
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed: true, Patch: raw, PatchType: new(admissionv1.PatchTypeJSONPatch), Warnings: warnings(request.Object.Raw),
	}}
}

// warnings returns warnings for the user who creates the pod.
func warnings(pod []byte) []string {
	var found struct{ Spec corev1.PodSpec }
	if err := json.Unmarshal(pod, &found); err != nil {
		return nil // The API server reports invalid pods.
	}
	if found.Spec.HostNetwork && found.Spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
		return []string{"a pod with hostNetwork must have dnsPolicy: ClusterFirstWithHostNet, otherwise its agent cannot resolve conclave-identity"}
	}
	return nil
}
