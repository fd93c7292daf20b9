package rules

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// checkAutoscalers finds HorizontalPodAutoscalers that count the requests of agents.
func checkAutoscalers(f *Facts) (all []Finding) {
	if f.Unknown[Pods] != "" {
		return nil
	}
	for i := range f.Autoscalers {
		a := &f.Autoscalers[i]
		if !slices.ContainsFunc(f.Pods, func(p corev1.Pod) bool { return membership.HasAgent(&p) && scales(a, &p) }) {
			continue
		}
		for _, m := range a.Spec.Metrics {
			if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Target.Type == autoscalingv2.UtilizationMetricType {
				all = append(all, Finding{
					Warning, "autoscaler " + a.Namespace + "/" + a.Name,
					fmt.Sprintf("Its metric for %s counts the agents: it scales later than without them.", m.Resource.Name),
					"Use a metric of the type ContainerResource with the name of your container: see docs/configure.md, Autoscaling.",
				})
			}
		}
	}
	return all
}

// scales reports whether a pod belongs to the workload that an autoscaler scales. The name of a Deployment's ReplicaSet ends with the
// value of a label.
func scales(a *autoscalingv2.HorizontalPodAutoscaler, p *corev1.Pod) bool {
	owner, target := metav1.GetControllerOfNoCopy(p), a.Spec.ScaleTargetRef
	if owner == nil || p.Namespace != a.Namespace {
		return false
	}
	return target.Kind == owner.Kind && target.Name == owner.Name ||
		target.Kind == "Deployment" && owner.Kind == "ReplicaSet" && owner.Name == target.Name+"-"+p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
}
