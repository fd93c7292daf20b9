package clusteraccess

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The manager's flag has precedence over the variable AGENT_IMAGE, as in the manager itself.
func TestAgentImageIsThatOfTheManager(t *testing.T) {
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"--leader-elect"}, "agent:1"},
		{[]string{"--leader-elect", "--log-level", "debug", "--agent-image=agent:2"}, "agent:2"},
		{[]string{"--agent-image", "agent:2", "--agent-uid=1000"}, "agent:2"},
	} {
		d := &appsv1.Deployment{}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy", Args: []string{"--agent-image=agent:3"}}, {
			Name: "manager", Image: "manager:1", Args: c.arguments, Env: []corev1.EnvVar{{Name: "AGENT_IMAGE", Value: "agent:1"}},
		}}
		if got := OperatorOf(d); got.AgentImage != c.want || got.Image != "manager:1" {
			t.Errorf("%q: got %+v, want the agent %s", c.arguments, got, c.want)
		}
	}
}
