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
)

// A program that must run in one pod at a time runs in no pod that has no agent, for example because the label is missing.
func TestProgramDoesNotRunWithoutAgent(t *testing.T) {
	admin := connect(t)
	apply(t, admin, build(t, "config/default"))
	create := func(annotation string, initContainers ...corev1.Container) error {
		pod := podOf(metav1.ObjectMeta{GenerateName: "settle-", Namespace: "default", Annotations: map[string]string{annotation: "ledger"}})
		pod.Spec.InitContainers = initContainers
		return admin.Create(t.Context(), pod, client.DryRunAll)
	}
	const want = "must have the label conclave.dev/agent: enabled"
	eventually(t, "a pod without an agent is refused", func() error {
		if err := create(v1.AnnotationExec); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("got error %w, want %q", err, want)
		}
		return nil
	})
	expect.Succeedf(t, create(v1.AnnotationExec, corev1.Container{Name: "conclave-exec", Image: "agent"}),
		"a pod with the program of the agent")
	expect.Succeedf(t, create(v1.AnnotationGroups), "a pod without the annotation")
}
