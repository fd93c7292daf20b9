package membership

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// withService adds a Service with two ports to the group.
func withService(f *planner) {
	f.Group.Spec.Service = &v1.CoordinatorService{Name: "front", Ports: []v1.ServicePort{
		{Name: "http", Port: 80, TargetPort: new(intstr.FromInt32(8080))},
		{Name: "dns", Port: 53, Protocol: v1.UDP},
	}}
}

func TestService(t *testing.T) {
	f := newDeclaredFacts("a 10")
	if p := f.step(); p.Service != nil || p.ServiceProblem != nil {
		t.Errorf("got Service %v, want none", p.Service)
	}
	withService(f)
	p := f.step()
	expect.Equalf(t, marshalYAML(t, p.Service), `
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
`, "Service")
	f.Service = p.Service
	if p := f.step(); p.Service == nil || p.ServiceProblem != nil {
		t.Error("got a conflict of an object with itself")
	}
	f.Service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "front"}}
	if p := f.step(); p.Service != nil {
		t.Error("got a Service although there is one of a user")
	} else {
		expectServiceProblem(t, &p,
			"ServiceConflict: Service front does not belong to this group, because it has no label conclave.dev/group: ledger: "+
				"change spec.service.name, or delete the Service")
	}
	f.Service.OwnerReferences = ownerReferences("apps/v1", "Deployment", "web", "6f0c")
	owned := f.step()
	expectServiceProblem(t, &owned,
		"ServiceConflict: Service front has another owner: change spec.service.name, or delete the Service")
	f.Service = p.Service.DeepCopy()
	f.Service.Spec.Selector = map[string]string{"app": "ledger"}
	if p := f.step(); p.Service != nil || p.KeptService != "front" || p.WritesEndpointSlice {
		t.Error("got a Service although there is one with a selector")
	} else {
		expectServiceProblem(t, &p, "ServiceConflict: Service front has a selector, so it points at all pods that match: "+
			"change spec.service.name, or delete the Service, and the operator creates it without a selector")
	}
}

func expectServiceProblem(t *testing.T, p *Plan, want string) {
	t.Helper()
	got := "none"
	if p.ServiceProblem != nil {
		got = string(p.ServiceProblem.Reason) + ": " + p.ServiceProblem.Message
	}
	expect.Equalf(t, got, want, "the problem of the Service")
}

func TestForbiddenService(t *testing.T) {
	f := newDeclaredFacts("a 10").addPods("a")
	f.ServicesForbidden = true
	p := f.step()
	expectServiceProblem(t, &p, "none")
	withService(f)
	if p = f.step(); p.Service != nil || p.Document == nil {
		t.Errorf("got Service %v and document %v, want no Service, and the document", p.Service, p.Document)
	}
	expectServiceProblem(t, &p, "ServicesForbidden: The operator lacks the permission for Services, so a Service that "+
		"exists may point at a former coordinator: "+
		"grant the permission as in docs/install.md, or remove spec.service and delete the Service")
}

func TestEndpointSlice(t *testing.T) {
	f := newDeclaredFacts("a 10").addPods("a")
	withService(f)
	setReady(f.findPod("a"), corev1.ConditionTrue)
	head := `
endpoints:
- addresses:
  - 10.0.0.1
  conditions:
    ready: true
    serving: true
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
	expect.Equalf(t, marshalYAML(t, EndpointSlice(f.Group, nil, f.findPod("a"))), "\naddressType: IPv4"+head+tail, "to a")
	expect.Equalf(t, marshalYAML(t, EndpointSlice(f.Group, nil, nil)),
		"\naddressType: IPv4\nendpoints: []\nmetadata:\n"+tail, "to no pod")
	f.findPod("a").Status.PodIP = ""
	expect.Equalf(t, marshalYAML(t, EndpointSlice(f.Group, nil, f.findPod("a"))),
		"\naddressType: IPv4\nendpoints: []\nmetadata:\n"+tail, "to a without an address")
	f.findPod("a").Status.PodIP = "fd00::7"
	six := EndpointSlice(f.Group, nil, f.findPod("a"))
	if six.AddressType != "IPv6" || six.Endpoints[0].Addresses[0] != "fd00::7" {
		t.Errorf("IPv6: got %+v", six)
	}
}

func setReady(pod *corev1.Pod, status corev1.ConditionStatus) {
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: status},
	}
}

func TestEndpointFollowsPod(t *testing.T) {
	for _, c := range []struct {
		routing        v1.Routing
		podReady       corev1.ConditionStatus
		deleted        bool
		ready, serving bool
	}{
		{"", corev1.ConditionTrue, false, true, true},
		{v1.RouteWhenReady, corev1.ConditionTrue, false, true, true},
		{v1.RouteWhenReady, corev1.ConditionFalse, false, false, false},
		{v1.RouteWhenReady, corev1.ConditionUnknown, false, false, false},
		{v1.RouteWhenReady, corev1.ConditionTrue, true, true, true},
		{v1.RouteAlways, corev1.ConditionFalse, false, true, false},
	} {
		f := newDeclaredFacts("a 10").addPods("a")
		withService(f)
		f.Group.Spec.Service.Routing = c.routing
		pod := f.findPod("a")
		setReady(pod, c.podReady)
		if c.deleted {
			pod.DeletionTimestamp = &metav1.Time{Time: f.Now}
		}
		got := EndpointSlice(f.Group, nil, pod).Endpoints[0].Conditions
		if *got.Ready != c.ready || *got.Serving != c.serving || got.Terminating != nil {
			t.Errorf("routing %q to a pod with the condition Ready=%s, deleted: %t: got ready %t, serving %t, terminating %v",
				c.routing, c.podReady, c.deleted, *got.Ready, *got.Serving, got.Terminating)
		}
	}
}

func TestServiceByAgents(t *testing.T) {
	f := newDeclaredFacts("a 10, b 5, c 1").addPods("a", "b", "c")
	f.Group.Spec.Service = &v1.CoordinatorService{
		Name: "front", Via: v1.ViaAgents, WaitMillis: new(int32(500)), Connections: v1.KeepConnections,
		ProxyProtocol: v1.ProxyV2,
		Ports: []v1.ServicePort{
			{Name: "http", Port: 80, TargetPort: new(intstr.FromInt32(8080))},
			{Name: "grpc", Port: 9090, AgentPort: 19090, AppProtocol: "kubernetes.io/h2c"},
		},
	}
	setReady(f.findPod("b"), corev1.ConditionFalse)
	f.findPod("c").Status.PodIP = "fd00::7"
	document := Document(f.Group, &v1.MemberList{}, f.Pods).Group.Service
	expect.Equalf(t, marshalYAML(t, document), `
connections: Keep
ports:
- listen: :7600
  port: 8080
- listen: :19090
  port: 9090
proxyProtocol: V2
waitMillis: 500
`, "what agents carry")
	expect.Equalf(t, f.step().Service.Spec.Ports[1].TargetPort.IntVal, 19090, "target port")
	slice := EndpointSlice(f.Group, nil, f.findPod("a"), f.findPod("b"), f.findPod("c"))
	expect.EqualSlicesf(t, []int32{*slice.Ports[0].Port, *slice.Ports[1].Port}, []int32{7600, 19090}, "ports")
	expect.Lenf(t, slice.Endpoints, 2, "endpoints of one family")
	expect.Equalf(t, *slice.Endpoints[1].Conditions.Ready, true, "an agent carries connections while its pod isn't ready")
}

func TestEndpointsAreAgents(t *testing.T) {
	f := newDeclaredFacts("a 1, b 2, c 3, d 4").addPods("a", "b", "c", "d")
	f.Group.Spec.Service = &v1.CoordinatorService{Name: "front", Via: v1.ViaAgents}
	expectEndpoints := func(want ...string) {
		t.Helper()
		var got []string
		for _, pod := range Endpoints(f.Facts, "c") {
			got = append(got, pod.Name)
		}
		expect.EqualSlicesf(t, got, want, "endpoints")
	}
	expectEndpoints() // Without a report of the group, an agent doesn't listen.
	for pod := range f.Pods {
		f.reportVersion(pod, 1)
	}
	f.findPod("d").DeletionTimestamp = &metav1.Time{Time: f.Now}
	expectEndpoints("a", "b", "c")
	report := func(pod, lost string) {
		f.Agents[pod].Report.Processes = []control.Row{{Name: lost, Status: string(v1.ProcessCrashed)}}
	}
	report("a", "c")
	report("c", "a")
	report("d", "c")
	expectEndpoints("a", "b", "c") // The agent of b hears all.
	report("b", "c")
	expectEndpoints("a", "b") // The agent of c is frozen.
	report("b", "a")
	f.EndpointSlice = EndpointSlice(f.Group, nil, Endpoints(f.Facts, "")...)
	f.disconnect("b", "c")
	f.changeAgent("c", func(a *facts.Agent) { a.Problem = "connection refused" })
	expectEndpoints("a", "b") // The operator hasn't tried to reach b yet, as after its start.
	f.disconnect("a")
	expectEndpoints("a", "b", "c") // The operator may be cut off.
}

func TestOptionsOfService(t *testing.T) {
	f := newDeclaredFacts("a 10")
	f.Group.Spec.Service = &v1.CoordinatorService{
		Name: "front", Type: v1.Headless, Routing: v1.RouteAlways,
		Ports: []v1.ServicePort{{Port: 80, TargetPort: new(intstr.FromString("grpc")), AppProtocol: "kubernetes.io/h2c"}},
	}
	expect.Equalf(t, marshalYAML(t, f.step().Service), `
metadata:
`+labelsYAML+`  name: front
`+ownerYAML+`spec:
  clusterIP: None
  ports:
  - appProtocol: kubernetes.io/h2c
    port: 80
    protocol: TCP
    targetPort: grpc
  publishNotReadyAddresses: true
status:
  loadBalancer: {}
`, "Service")
}

// The agent is a sidecar. Applications can be sidecars, too.
func TestTargetPortWithName(t *testing.T) {
	f := newDeclaredFacts("a 10").addPods("a")
	f.Group.Spec.Service = &v1.CoordinatorService{Name: "front", Ports: []v1.ServicePort{
		{Name: "a", Port: 80, TargetPort: new(intstr.FromString("http"))},
		{Name: "b", Port: 81, TargetPort: new(intstr.FromString("admin")), AppProtocol: "http"},
		{Name: "c", Port: 82, TargetPort: new(intstr.FromString("http")), Protocol: v1.UDP},
	}}
	pod := f.findPod("a")
	pod.Spec.InitContainers = []corev1.Container{
		{Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: 9000, Protocol: corev1.ProtocolTCP}}},
	}
	pod.Spec.Containers = []corev1.Container{
		{}, {Ports: []corev1.ContainerPort{{ContainerPort: 1}, {Name: "http", ContainerPort: 8080}}},
	}
	expect.Equalf(t, marshalYAML(t, EndpointSlice(f.Group, nil, pod).Ports), `
- name: a
  port: 8080
  protocol: TCP
- appProtocol: http
  name: b
  port: 9000
  protocol: TCP
`, "ports")
	expect.EqualSlicesf(t, MissingPorts(f.Group, pod), []string{"http"}, "missing ports (of UDP)")
	expect.Lenf(t, EndpointSlice(f.Group, nil, nil).Ports, 0, "ports without a pod")
}

// TestAddressHasTheFamilyOfTheService: a Service that a user hands over may have another family than the first
// addresses of pods.
func TestAddressHasTheFamilyOfTheService(t *testing.T) {
	f := newDeclaredFacts("a 10")
	withService(f)
	pod := f.addPod("a")
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}, {IP: "fd00::7"}}
	for family, want := range map[corev1.IPFamily]string{"": pod.Status.PodIP, corev1.IPv6Protocol: "fd00::7"} {
		service := &corev1.Service{}
		if family != "" {
			service.Spec.IPFamilies = []corev1.IPFamily{family}
		}
		expect.Equalf(t, EndpointSlice(f.Group, service, pod).Endpoints[0].Addresses[0], want, "address of family %q", family)
	}
}
