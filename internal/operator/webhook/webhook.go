// Package webhook answers the API server when a pod that opted in is made: with
// a patch that puts the agent into it.
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

// Path is where the handler is.
const Path = "/inject"

// Injector injects the agent. A pod that hasn't opted in is never kept from
// starting, whatever is wrong with it or with us.
type Injector struct {
	// Settings are asked for at each pod: authorities change.
	Settings func(context.Context) (inject.Settings, error)
	Log      *slog.Logger
}

// Handle answers one request.
func (i *Injector) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.Kind.Kind != "Pod" || request.Kind.Group != "" || request.SubResource != "" || request.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	settings, unsettled := i.Settings(ctx)
	patch, err := inject.Patch(request.Object.Raw, settings)
	switch {
	case err != nil:
		i.Log.Info("a pod was refused", "namespace", request.Namespace, "name", request.Name, "error", err)
		return admission.Denied(err.Error())
	case len(patch) == 0:
		return admission.Allowed("")
	case unsettled != nil:
		return admission.Errored(http.StatusInternalServerError, unsettled)
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed: true, Patch: raw, PatchType: new(admissionv1.PatchTypeJSONPatch), Warnings: warnings(request.Object.Raw),
	}}
}

// warnings are what the user should know who makes a pod.
func warnings(pod []byte) []string {
	var found struct{ Spec corev1.PodSpec }
	if err := json.Unmarshal(pod, &found); err != nil {
		return nil // The API server will say so.
	}
	if found.Spec.HostNetwork && found.Spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
		return []string{"on the network of its node, the pod needs dnsPolicy: ClusterFirstWithHostNet, or its agent doesn't find conclave-identity"}
	}
	return nil
}
