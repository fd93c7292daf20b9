package membership

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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

func TestConfigMap(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20").addPods("a")
	f.CABundle = "the authorities"
	expect(t, "ConfigMap", marshalYAML(t, f.step().ConfigMap), `
data:
  ca.pem: the authorities
  group.yaml: |
    uid: "6f0c"
    generation: 1
    revision: 1780315200000
    group:
      name: "ledger"
      algorithm: "StatusTable"
      safety: {"mode":"Majority","leaseMillis":500}
      preemption: {"policy":"WhenStable","stableSeconds":5}
      timing: {"heartbeatMillis":100,"drainMillis":5000}
      application: {"session":"Optional"}
      version: 1
      members:
      - {"name":"a","priority":10,"address":"10.0.0.1:7373","uid":"a0"}
      - {"name":"b","priority":20}
metadata:
`+labelsYAML+`  name: conclave-ledger
`+ownerYAML)
}

// withService adds a Service with two ports to the group.
func withService(f *Facts) {
	f.Group.Spec.Service = &v1.CoordinatorService{Name: "front", Ports: []v1.ServicePort{
		{Name: "http", Port: 80, TargetPort: new(int32(8080))},
		{Name: "dns", Port: 53, Protocol: v1.UDP},
	}}
}

func TestService(t *testing.T) {
	f := newDeclaredFacts("a 10")
	if p := f.step(); p.Service != nil || p.ServiceConflict {
		t.Errorf("got Service %v, want none", p.Service)
	}
	withService(f)
	p := f.step()
	expect(t, "Service", marshalYAML(t, p.Service), `
metadata:
`+labelsYAML+`  name: front
`+ownerYAML+`spec:
  ports:
  - name: http
    port: 80
    protocol: TCP
    targetPort: 8080
  - name: dns
    port: 53
    protocol: UDP
    targetPort: 53
status:
  loadBalancer: {}
`)
	f.Service = p.Service
	if p := f.step(); p.Service == nil || p.ServiceConflict {
		t.Error("got a conflict of an object with itself")
	}
	f.Service = &corev1.Service{}
	if p := f.step(); p.Service != nil || !p.ServiceConflict {
		t.Error("got a Service although there is one with another owner")
	}
	f.Service = p.Service.DeepCopy()
	f.Service.Spec.Selector = map[string]string{"app": "ledger"}
	if p := f.step(); p.Service != nil || p.ServiceConflict || !p.ServiceHasSelector {
		t.Error("got a Service although there is one with a selector")
	}
}

func TestEndpointSlice(t *testing.T) {
	f := newDeclaredFacts("a 10").addPods("a")
	withService(f)
	head := `
endpoints:
- addresses:
  - 10.0.0.1
  conditions:
    ready: true
    serving: true
    terminating: false
  nodeName: node-a
  targetRef:
    kind: Pod
    name: a
    namespace: bank
    uid: a0
metadata:
`
	tail := `  labels:
    conclave.dev/group: ledger
    endpointslice.kubernetes.io/managed-by: conclave.dev
    kubernetes.io/service-name: front
  name: front-conclave
` + ownerYAML + `ports:
- name: http
  port: 8080
  protocol: TCP
- name: dns
  port: 53
  protocol: UDP
`
	expect(t, "to a", marshalYAML(t, EndpointSlice(f.Group, f.findPod("a"))), "\naddressType: IPv4"+head+tail)
	expect(t, "to no pod", marshalYAML(t, EndpointSlice(f.Group, nil)), "\naddressType: IPv4\nendpoints: []\nmetadata:\n"+tail)
	f.findPod("a").Status.PodIP = ""
	expect(t, "to a without an address", marshalYAML(t, EndpointSlice(f.Group, f.findPod("a"))), "\naddressType: IPv4\nendpoints: []\nmetadata:\n"+tail)
	f.findPod("a").Status.PodIP = "fd00::7"
	six := EndpointSlice(f.Group, f.findPod("a"))
	if six.AddressType != "IPv6" || six.Endpoints[0].Addresses[0] != "fd00::7" {
		t.Errorf("IPv6: got %+v", six)
	}
}

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

// TestConfigMapConflict tests that a list that cannot be published does not begin, and the
// list in force remains.
func TestConfigMapConflict(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20").addPods("a", "b")
	f.ConfigMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conclave-ledger"}}
	const why = "ConfigMapConflict: ConfigMap conclave-ledger, which agents mount, has another owner: delete it, or recreate it under another name"
	p := f.step()
	expect(t, "at first", formatList(p.List)+" "+formatProblem(p.Problem), "none "+why)
	f.ConfigMap = nil
	f.ConfigMap = f.step().ConfigMap
	expect(t, "after its deletion", formatList(f.Group.Status.MemberList)+formatProblem(f.step().Problem), "v1 Settled: a 10, b 20")
	f.ConfigMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conclave-ledger"}}
	f.Group.Spec.Members = parseMembers("a 10, b 20, c 30")
	p = f.step()
	expect(t, "later", formatList(p.List)+" "+formatProblem(p.Problem), "v1 Settled: a 10, b 20 "+why)
	if p.ConfigMap != nil || p.Document != nil || !p.ConfigMapConflict {
		t.Error("got a document or a ConfigMap, want none")
	}
}

func TestEndpointSliceConflict(t *testing.T) {
	f := newDeclaredFacts("a 10").addPods("a")
	withService(f)
	f.EndpointSlice = EndpointSlice(f.Group, f.findPod("a"))
	if p := f.step(); p.EndpointSliceConflict {
		t.Error("got a conflict of an object with itself")
	}
	f.EndpointSlice = &discoveryv1.EndpointSlice{}
	if p := f.step(); !p.EndpointSliceConflict || p.Service == nil {
		t.Errorf("want a conflict and a Service; got %+v", p)
	}
}
