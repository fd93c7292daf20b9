package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

func shown(t *testing.T, object any) string {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return "\n" + string(data)
}

const owner = `  labels:
    conclave.dev/group: ledger
`

const reference = `  namespace: bank
  ownerReferences:
  - apiVersion: conclave.dev/v1
    blockOwnerDeletion: true
    controller: true
    kind: ElectionGroup
    name: ledger
    uid: 6f0c
`

func TestConfigMap(t *testing.T) {
	f := declared("a 10, b 20").pods("a")
	f.Authorities = "the authorities"
	expect(t, "ConfigMap", shown(t, f.step().ConfigMap), `
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
      - {"name":"a","priority":10,"address":"10.0.0.1:7373"}
      - {"name":"b","priority":20}
metadata:
`+owner+`  name: conclave-ledger
`+reference)
}

// withService gives the group a Service of two ports.
func withService(f *Facts) {
	f.Group.Spec.Service = &v1.CoordinatorService{Name: "front", Ports: []v1.ServicePort{
		{Name: "http", Port: 80, TargetPort: new(int32(8080))},
		{Name: "dns", Port: 53, Protocol: v1.UDP},
	}}
}

func TestService(t *testing.T) {
	f := declared("a 10")
	if p := f.step(); p.Service != nil || p.ServiceTaken {
		t.Errorf("none is wanted, and there is %v", p.Service)
	}
	withService(f)
	p := f.step()
	expect(t, "Service", shown(t, p.Service), `
metadata:
`+owner+`  name: front
`+reference+`spec:
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
	if p := f.step(); p.Service == nil || p.ServiceTaken {
		t.Error("it is taken by itself")
	}
	for sentence, foreign := range map[string]*corev1.Service{
		"nobody's":           {},
		"an earlier group's": {ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "old", Controller: new(true)}}}},
		"only looked after":  {ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: f.Group.UID}}}},
	} {
		f.Service = foreign
		if p := f.step(); p.Service != nil || !p.ServiceTaken {
			t.Errorf("a Service that is %s isn't left alone", sentence)
		}
	}
}

func TestEndpointSlice(t *testing.T) {
	f := declared("a 10").pods("a")
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
` + reference + `ports:
- name: http
  port: 8080
  protocol: TCP
- name: dns
  port: 53
  protocol: UDP
`
	expect(t, "to a", shown(t, EndpointSlice(f.Group, f.find("a"))), "\naddressType: IPv4"+head+tail)
	expect(t, "to nobody", shown(t, EndpointSlice(f.Group, nil)), "\naddressType: IPv4\nendpoints: []\nmetadata:\n"+tail)
	f.find("a").Status.PodIP = ""
	expect(t, "to a without an address", shown(t, EndpointSlice(f.Group, f.find("a"))), "\naddressType: IPv4\nendpoints: []\nmetadata:\n"+tail)
	f.find("a").Status.PodIP = "fd00::7"
	six := EndpointSlice(f.Group, f.find("a"))
	if six.AddressType != "IPv6" || six.Endpoints[0].Addresses[0] != "fd00::7" {
		t.Errorf("to IPv6: %+v", six)
	}
}
