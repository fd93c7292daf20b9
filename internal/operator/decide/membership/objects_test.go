package membership

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

func marshalYAML(t *testing.T, object any) string {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return "\n" + string(data)
}

const labelsYAML = `  labels:
    conclave.dev/group: ledger
`

const ownerYAML = `  namespace: bank
  ownerReferences:
  - apiVersion: conclave.dev/v1
    blockOwnerDeletion: true
    controller: true
    kind: ElectionGroup
    name: ledger
    uid: 6f0c
`

// ownerReferences returns a reference to a controller.
func ownerReferences(apiVersion, kind, name, uid string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true)}}
}

func TestOwnedByOther(t *testing.T) {
	f := newDeclaredFacts("a 10").addPods("a")
	mark := map[string]string{v1.LabelGroup: "ledger"}
	for name, c := range map[string]struct {
		metav1.ObjectMeta
		want bool
	}{
		"created by a user":                             {metav1.ObjectMeta{}, true},
		"with another label":                            {metav1.ObjectMeta{Labels: map[string]string{"app": "ledger"}}, true},
		"of another group":                              {metav1.ObjectMeta{Labels: map[string]string{v1.LabelGroup: "audit"}}, true},
		"of another group, with the label of this one":  {metav1.ObjectMeta{Labels: mark, OwnerReferences: ownerReferences("conclave.dev/v1", "ElectionGroup", "audit", "a")}, true},
		"of another kind":                               {metav1.ObjectMeta{Labels: mark, OwnerReferences: ownerReferences("apps/v1", "Deployment", "ledger", "6f0c")}, true},
		"of another API":                                {metav1.ObjectMeta{Labels: mark, OwnerReferences: ownerReferences("example.org/v1", "ElectionGroup", "ledger", "6f0c")}, true},
		"that is only garbage-collected with the group": {metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "ElectionGroup", Name: "ledger", UID: "6f0c"}}}, true},
		"of this group":                                 {ownedMeta(f.Group, "x"), false},
		"of this group without its label":               {metav1.ObjectMeta{OwnerReferences: ownedMeta(f.Group, "x").OwnerReferences}, false},
		"of this group without its owner":               {metav1.ObjectMeta{Labels: mark}, false},
		"from a backup":                                 {metav1.ObjectMeta{Labels: mark, OwnerReferences: ownerReferences("conclave.dev/v1", "ElectionGroup", "ledger", "old")}, false},
		"of an older version of the kind":               {metav1.ObjectMeta{OwnerReferences: ownerReferences("conclave.dev/v1alpha1", "ElectionGroup", "ledger", "old")}, false},
	} {
		if got := OwnedByOther(&c.ObjectMeta, f.Group); got != c.want {
			t.Errorf("an object %s: got %t", name, got)
		}
	}
}

func TestEndpointSliceConflict(t *testing.T) {
	f := newDeclaredFacts("a 10").addPods("a")
	withService(f)
	f.EndpointSlice = EndpointSlice(f.Group, nil, f.findPod("a"))
	if p := f.step(); p.EndpointSliceConflict {
		t.Error("got a conflict of an object with itself")
	}
	f.EndpointSlice = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: "front-conclave", OwnerReferences: ownerReferences("conclave.dev/v1", "ElectionGroup", "audit", "a"),
	}}
	if p := f.step(); !p.EndpointSliceConflict || p.Service == nil {
		t.Errorf("want a conflict and a Service; got %+v", p)
	} else {
		expectServiceProblem(t, &p, "ServiceConflict: EndpointSlice front-conclave has another owner: change spec.service.name, or delete the EndpointSlice")
	}
}
