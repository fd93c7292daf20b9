package membership

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

func BenchmarkMake(b *testing.B) {
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger", UID: "u"}}
	f := Facts{Group: g}
	for i := range 1000 {
		name := fmt.Sprint("ledger-", i)
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: name, Priority: int32(i + 1)})
		f.Pods = append(f.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{PodIP: fmt.Sprintf("10.0.%d.%d", i/256, i%256)}})
	}
	g.Status.Protocol.MemberList = &v1.MemberList{
		Version: 2, State: v1.ListSettled, Members: g.Spec.Members, Floor: new(int64(7)),
		Previous: &v1.PreviousList{Members: g.Spec.Members},
	}
	for b.Loop() {
		MakePlan(f)
	}
}
