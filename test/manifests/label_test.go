package manifests_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// Nobody removes the label from a pod with an agent: the operator wouldn't know of the agent any more, which goes on
// electing.
func TestLabelStaysWithAgent(t *testing.T) {
	admin := connect(t)
	apply(t, admin, build(t, "config/default"))
	pod := func(name string, agent bool) *corev1.Pod {
		pod := podOf(metav1.ObjectMeta{
			GenerateName: name, Namespace: "default", Labels: map[string]string{v1.LabelAgent: v1.AgentEnabled, "app": "ledger"},
		})
		if agent {
			pod.Spec.InitContainers = []corev1.Container{{Name: v1.AgentContainer, Image: "agent", RestartPolicy: new(
				corev1.ContainerRestartPolicyAlways)}}
		}
		// The API server can't reach the webhook.
		pod.Labels[v1.LabelAgent] = "later"
		must.Succeed(t, admin.Create(t.Context(), pod))
		before := pod.DeepCopy()
		pod.Labels[v1.LabelAgent] = v1.AgentEnabled
		must.Succeed(t, admin.Patch(t.Context(), pod, client.MergeFrom(before)))
		return pod
	}
	change := func(pod *corev1.Pod, change func(map[string]string)) error {
		changed := pod.DeepCopy()
		change(changed.Labels)
		return admin.Patch(t.Context(), changed, client.MergeFrom(pod), client.DryRunAll)
	}
	remove := func(labels map[string]string) { delete(labels, v1.LabelAgent) }
	member, bare := pod("member-", true), pod("bare-", false)
	const want = "cannot be removed from a pod with an agent"
	eventually(t, "the label can't be removed", func() error {
		if err := change(member, remove); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("got error %w, want %q", err, want)
		}
		return nil
	})
	if err := change(member, func(labels map[string]string) { labels[v1.LabelAgent] = v1.AgentDisabled }); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("another value: got error %v, want %q", err, want)
	}
	expect.Succeedf(t, change(member, func(labels map[string]string) { labels["app"] = "other" }), "another label")
	expect.Succeedf(t, change(bare, remove), "a pod without an agent")
}

// A program that must run in one pod at a time runs in no pod that has no agent, for example because the label is
// missing.
func TestProgramDoesNotRunWithoutAgent(t *testing.T) {
	admin := connect(t)
	apply(t, admin, build(t, "config/default"))
	create := func(annotation, label string, initContainers ...string) error {
		pod := podOf(metav1.ObjectMeta{
			// The webhook doesn't change the pods there.
			GenerateName: "settle-", Namespace: "kube-system", Labels: map[string]string{v1.LabelAgent: label},
			Annotations: map[string]string{annotation: "ledger"},
		})
		for _, name := range initContainers {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name, Image: "agent"})
		}
		return admin.Create(t.Context(), pod, client.DryRunAll)
	}
	const want = "must have the label conclave.dev/agent: enabled"
	eventually(t, "a pod without an agent is refused", func() error {
		return expectRefusal(create(v1.AnnotationExec, v1.AgentEnabled), want)
	})
	for what, err := range map[string]error{
		"no label":                  create(v1.AnnotationExec, "", v1.AgentContainer, "conclave-exec"),
		"the program, but no agent": create(v1.AnnotationExec, v1.AgentEnabled, "conclave-exec"),
		"the agent, but no program": create(v1.AnnotationExec, v1.AgentEnabled, v1.AgentContainer),
	} {
		expect.Succeedf(t, expectRefusal(err, want), "%s", what)
	}
	expect.Succeedf(t, create(v1.AnnotationExec, v1.AgentEnabled, v1.AgentContainer, "conclave-exec"),
		"a pod with the program and the agent")
	expect.Succeedf(t, create(v1.AnnotationGroups, v1.AgentEnabled), "a pod without the annotation")
}
