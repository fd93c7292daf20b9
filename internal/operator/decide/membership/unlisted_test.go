package membership_test

import (
	"slices"
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
		members, pods []string
		change        func(*corev1.Pod)
		want          []string
	}{
		"not scaled":                  {members: []string{"ledger-0", "ledger-1"}, pods: []string{"ledger-0", "ledger-1"}},
		"scaled by two":               {members: []string{"ledger-0", "ledger-1"}, pods: []string{"ledger-2", "ledger-3"}, want: []string{"ledger-2", "ledger-3"}},
		"scaled over ten":             {members: []string{"ledger-9", "ledger-8"}, pods: []string{"ledger-10"}, want: []string{"ledger-10"}},
		"members left out of the set": {members: []string{"ledger-0", "ledger-2"}, pods: []string{"ledger-1", "ledger-3"}, want: []string{"ledger-1", "ledger-3"}},
		"another set":                 {members: []string{"ledger-0", "ledger-1"}, pods: []string{"mail-2"}},
		"pods of a Deployment":        {members: []string{"mail-x2x4p"}, pods: []string{"mail-x2x4q"}},
		"no ordinal":                  {members: []string{"ledger"}, pods: []string{"ledger-0"}},
		"in another group": {members: []string{"ledger-0"}, pods: []string{"ledger-1"}, change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1.AnnotationSelectedBy: "mail"}
		}},
		"without an agent": {members: []string{"ledger-0"}, pods: []string{"ledger-1"}, change: func(p *corev1.Pod) { p.Spec.InitContainers = nil }},
		"finished":         {members: []string{"ledger-0"}, pods: []string{"ledger-1"}, change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"being deleted": {members: []string{"ledger-0"}, pods: []string{"ledger-1"}, change: func(p *corev1.Pod) {
			p.DeletionTimestamp = new(metav1.Now())
		}},
	} {
		g := &v1.ElectionGroup{}
		for _, m := range c.members {
			g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: m})
		}
		got := membership.Unlisted(g, func(name string) *corev1.Pod {
			if !slices.Contains(c.pods, name) {
				return nil
			}
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{InitContainers: agent}}
			if c.change != nil {
				c.change(p)
			}
			return p
		})
		expect.EqualSlicesf(t, got, c.want, "%s", name)
		for _, pod := range got {
			if !slices.ContainsFunc(membership.Before(pod), func(before string) bool { return slices.Contains(c.members, before) }) {
				t.Errorf("%s: a change of pod %s doesn't concern the group", name, pod)
			}
		}
	}
}
