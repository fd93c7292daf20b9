package rules

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// autoscale gives each pod an owner, and adds an autoscaler with a target.
func autoscale(f *Facts, ownerKind, owner, kind, name string, metric autoscalingv2.MetricSourceType) {
	for i := range f.Pods {
		f.Pods[i].OwnerReferences = []metav1.OwnerReference{{Kind: ownerKind, Name: owner, Controller: new(true)}}
		f.Pods[i].Labels["pod-template-hash"] = "7c9f"
	}
	a := autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	a.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: kind, Name: name}
	a.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: metric, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType},
	}}}
	f.Autoscalers = append(f.Autoscalers, a)
}
