package rules

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
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

func TestAutoscalersThatCountAgents(t *testing.T) {
	const warning = "warning autoscaler bank/ledger: Its metric for cpu counts the agents: it scales later than without them."
	resource := autoscalingv2.ResourceMetricSourceType
	for name, c := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"a StatefulSet":      {func(f *Facts) { autoscale(f, "StatefulSet", "ledger", "StatefulSet", "ledger", resource) }, warning},
		"a Deployment":       {func(f *Facts) { autoscale(f, "ReplicaSet", "ledger-7c9f", "Deployment", "ledger", resource) }, warning},
		"another Deployment": {func(f *Facts) { autoscale(f, "ReplicaSet", "ledger-web-7c9f", "Deployment", "ledger", resource) }, ""},
		"it looks at one container": {func(f *Facts) {
			autoscale(f, "StatefulSet", "ledger", "StatefulSet", "ledger", autoscalingv2.ContainerResourceMetricSourceType)
		}, ""},
		"for an amount of CPU": {func(f *Facts) {
			autoscale(f, "StatefulSet", "ledger", "StatefulSet", "ledger", resource)
			f.Autoscalers[0].Spec.Metrics[0].Resource.Target.Type = autoscalingv2.AverageValueMetricType
		}, ""},
		"pods without agents": {func(f *Facts) {
			autoscale(f, "StatefulSet", "ledger", "StatefulSet", "ledger", resource)
			for i := range f.Pods {
				f.Pods[i].Spec.InitContainers, f.Pods[i].Labels[v1.LabelAgent] = nil, v1.AgentDisabled
			}
		}, ""},
	} {
		f := healthy(t)
		c.change(f)
		findings := Run(f)
		expect.Equalf(t, format(findings), c.want, "%s", name)
		if c.want != "" && findings[0].Advice == "" {
			t.Errorf("%s: got no advice", name)
		}
	}
}
