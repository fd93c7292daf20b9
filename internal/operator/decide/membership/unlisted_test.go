package membership_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestUnlistedPods: a StatefulSet was scaled up, and spec.members wasn't changed.
func TestUnlistedPods(t *testing.T) {
	agent := []corev1.Container{{Name: v1.AgentContainer, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	for name, c := range map[string]struct {
		members, pods string
		change        func(*corev1.Pod)
		want          string
	}{
		"not scaled":                  {members: "ledger-0 ledger-1", pods: "ledger-0 ledger-1"},
		"scaled by two":               {members: "ledger-0 ledger-1", pods: "ledger-2 ledger-3", want: "ledger-2 ledger-3"},
		"scaled over ten":             {members: "ledger-9 ledger-8", pods: "ledger-10", want: "ledger-10"},
		"members left out of the set": {members: "ledger-0 ledger-2", pods: "ledger-1 ledger-3", want: "ledger-1 ledger-3"},
		"another set":                 {members: "ledger-0 ledger-1", pods: "mail-2"},
		"pods of a Deployment":        {members: "mail-x2x4p", pods: "mail-x2x4q"},
		"no ordinal":                  {members: "ledger", pods: "ledger-0"},
		"in another group": {members: "ledger-0", pods: "ledger-1", change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1.AnnotationSelectedBy: "mail"}
		}},
		"without an agent": {
			members: "ledger-0", pods: "ledger-1", change: func(p *corev1.Pod) { p.Spec.InitContainers = nil },
		},
		"finished": {
			members: "ledger-0", pods: "ledger-1", change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		},
		"being deleted": {members: "ledger-0", pods: "ledger-1", change: func(p *corev1.Pod) {
			p.DeletionTimestamp = new(metav1.Now())
		}},
	} {
		g := &v1.ElectionGroup{}
		for m := range strings.FieldsSeq(c.members) {
			g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: m})
		}
		got := membership.Unlisted(g, func(name string) *corev1.Pod {
			if !slices.Contains(strings.Fields(c.pods), name) {
				return nil
			}
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{InitContainers: agent}}
			if c.change != nil {
				c.change(p)
			}
			return p
		})
		expect.Equalf(t, strings.Join(got, " "), c.want, "%s", name)
		for _, pod := range got {
			if !slices.ContainsFunc(membership.Before(pod),
				func(before string) bool { return slices.Contains(strings.Fields(c.members), before) }) {
				t.Errorf("%s: a change of pod %s doesn't concern the group", name, pod)
			}
		}
	}
}
