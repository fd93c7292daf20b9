package manifests_test

import (
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const group = "ledger"

type (
	hook  = admissionregistrationv1.MutatingWebhook
	hooks = admissionregistrationv1.MutatingWebhookConfiguration
)

// fixture has the objects that the attempts are about.
type fixture struct {
	namespace string
	caBundle  []byte
	// Of the system, and of somebody else.
	systemPod, stranger *corev1.Pod
	service             *corev1.Service
	slice               *discoveryv1.EndpointSlice
	// Of the group, or handed over to it by its label.
	member                    *corev1.Pod
	ownService, handedService *corev1.Service
	ownSlice                  *discoveryv1.EndpointSlice
}

// newFixture creates the objects.
func newFixture(t *testing.T, admin client.Client) *fixture {
	t.Helper()
	bank := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bank-"}}
	must.Succeed(t, admin.Create(t.Context(), bank))
	_, ca, err := identity.NewCA("test", time.Hour)
	must.Succeed(t, err)
	f := &fixture{namespace: bank.Name, caBundle: ca.Cert}
	f.systemPod = podOf(metadata("kube-system", "coredns"))
	f.stranger = podOf(f.metadata("stranger"))
	f.stranger.Labels = map[string]string{"app": "web", v1.RoleLabel("former"): v1.RoleFollower}
	f.service = &corev1.Service{ObjectMeta: f.metadata("web"), Spec: somePort()}
	f.slice = sliceOf(f.metadata("web-abcde"), "web")
	f.member = podOf(f.metadata("ledger-0"))
	f.member.Spec.InitContainers = []corev1.Container{{Name: v1.AgentContainer, Image: "agent", RestartPolicy: new(
		corev1.ContainerRestartPolicyAlways)}}
	f.member.Annotations = map[string]string{v1.AnnotationSelectedBy: "", v1.AnnotationProbe: "http://127.0.0.1/"}
	f.member.Finalizers = []string{v1.StopFinalizer("orders"), "example.org/backup"}
	f.ownService = &corev1.Service{ObjectMeta: f.owned("ledger"), Spec: somePort()}
	f.handedService = &corev1.Service{ObjectMeta: f.handed("shared", group), Spec: somePort()}
	f.handedService.Spec.Type, f.handedService.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer,
		[]string{"10.0.0.0/8"}
	f.handedService.Finalizers = []string{"example.org/address"}
	f.ownSlice = sliceOf(f.owned("ledger-conclave"), "ledger")
	for _, object := range []client.Object{
		f.systemPod, f.stranger, f.service, f.slice,
		f.member, f.ownService, f.handedService, f.ownSlice,
	} {
		if err := admin.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return f
}

func metadata(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func (f *fixture) metadata(name string) metav1.ObjectMeta { return metadata(f.namespace, name) }

// handed is the metadata of an object that a user has handed over to a group.
func (f *fixture) handed(name, group string) metav1.ObjectMeta {
	m := f.metadata(name)
	m.Labels = map[string]string{v1.LabelGroup: group}
	return m
}

// owned is the metadata of an object of the group.
func (f *fixture) owned(name string) metav1.ObjectMeta {
	m := f.handed(name, group)
	m.OwnerReferences = ownedBy(group)
	return m
}

func ownedBy(group string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: v1.GroupVersion.String(), Kind: "ElectionGroup", Name: group,
		UID: types.UID("uid-of-" + group), Controller: new(true),
	}}
}

func podOf(m metav1.ObjectMeta) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: m, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "application", Image: "image"}}},
	}
}

func somePort() corev1.ServiceSpec {
	return corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}
}

// sliceOf points a Service at a pod.
func sliceOf(m metav1.ObjectMeta, service string) *discoveryv1.EndpointSlice {
	m.Labels = map[string]string{
		discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: v1.GroupVersion.Group,
		v1.LabelGroup: m.Labels[v1.LabelGroup],
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: m, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: m.Namespace, Name: "ledger-0",
		}}},
	}
}

// changed returns a changed copy of an object.
func changed[T client.Object](object T, change func(T)) T {
	copied, _ := object.DeepCopyObject().(T)
	change(copied)
	return copied
}

// The messages of the policies.
const (
	notItsOwn  = "the manager may change or delete only objects of an ElectionGroup"
	withoutOwn = "the manager may write only objects with the label conclave.dev/group and with that " +
		"ElectionGroup as their owner"
	otherLabels     = "the manager may set no labels except its own"
	otherFinalizers = "the manager may change no finalizers of these objects"
	ownNamespace    = "may write no Services and EndpointSlices in its own namespace"
)

func managerAttempts(f *fixture) []attempt {
	var all []attempt
	for _, some := range [][]attempt{f.podAttempts(), f.serviceAttempts(), f.sliceAttempts(), f.otherAttempts()} {
		all = append(all, some...)
	}
	return all
}

func (f *fixture) podAttempts() []attempt {
	const (
		spec, labels = "may not change the spec of a pod", "may change no labels of a pod except role.conclave.dev/GROUP"
		owners       = "may not change the owners of a pod"
		annotations  = "may change no annotation of a pod except conclave.dev/selected-by"
		finalizers   = "may change no finalizers of a pod except confirm-stopped.conclave.dev/GROUP"
		role         = "may set a role label only to coordinator or follower, and only on a pod that has opted in"
	)
	setRecord := func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1.AnnotationSelectedBy, group)
	}
	setCost := func(cost string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, corev1.PodDeletionCost, cost) }
	}
	setImage := func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" }
	setRole := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Labels = map[string]string{v1.RoleLabel(group): value}
			if p.Name == f.stranger.Name {
				p.Labels["app"], p.Labels[v1.RoleLabel("former")] = "web", v1.RoleFollower
			}
		}
	}
	return []attempt{
		patch("the image of a pod of the system", spec, f.systemPod, setImage),
		patch("the image of a member", spec, f.member, setImage),
		patch("a label that a Service may select", labels, f.member,
			func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }),
		patch("another value of a label", labels, f.stranger, func(p *corev1.Pod) { p.Labels["app"] = "other" }),
		patch("without a label", labels, f.stranger, func(p *corev1.Pod) { delete(p.Labels, "app") }),
		patch("an annotation", annotations, f.member, func(p *corev1.Pod) { p.Annotations["a"] = "b" }),
		patch("the groups that the author of a pod named", annotations, f.member,
			func(p *corev1.Pod) { p.Annotations[v1.AnnotationGroups] = "ledger" }),
		patch("without the record of its groups", annotations, f.member,
			func(p *corev1.Pod) { delete(p.Annotations, v1.AnnotationSelectedBy) }),
		patch("groups of a pod that hasn't opted in", annotations, f.stranger, setRecord),
		patch("another deletion cost", annotations, f.member, setCost("-1")),
		patch("the deletion cost of a pod that hasn't opted in", annotations, f.stranger,
			setCost(v1.CoordinatorDeletionCost)),
		patch("an owner", owners, f.member, func(p *corev1.Pod) { p.OwnerReferences = ownedBy(group) }),
		patch("another finalizer", finalizers, f.member,
			func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "example.org/other") }),
		patch("without another's finalizer", finalizers, f.member, func(p *corev1.Pod) { p.Finalizers = p.Finalizers[:1] }),
		patch("a finalizer of a pod of the system", "may add a finalizer only to a pod that has opted in",
			f.systemPod, func(p *corev1.Pod) {
				p.Finalizers = []string{v1.StopFinalizer(group)}
			}),
		patch("a role of a pod that hasn't opted in", role, f.stranger, setRole(v1.RoleFollower)),
		patch("another role", role, f.member, setRole("king")),

		patch("the role of a member", "", f.member, setRole(v1.RoleCoordinator)),
		patch("the groups that select a member", "", f.member, setRecord),
		patch("the deletion cost of a coordinator", "", f.member, setCost(v1.CoordinatorDeletionCost)),
		patch("without a role", "", f.stranger, func(p *corev1.Pod) { delete(p.Labels, v1.RoleLabel("former")) }),
		patch("another group's finalizer", "", f.member,
			func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, v1.StopFinalizer(group)) }),
		patch("without a group's finalizer", "", f.member, func(p *corev1.Pod) { p.Finalizers = p.Finalizers[1:] }),
	}
}

func (f *fixture) serviceAttempts() []attempt {
	const kind, selector = "may create only Services of type ClusterIP without external addresses",
		"may write no Service with a selector"
	const settings = "may change nothing of a Service except its ports, publishNotReadyAddresses, labels and owner"
	setPort := func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }
	created := func(change func(*corev1.ServiceSpec)) *corev1.Service {
		service := &corev1.Service{ObjectMeta: f.owned("new"), Spec: somePort()}
		change(&service.Spec)
		return service
	}
	return []attempt{
		patch("the clients of a load balancer that was handed over", settings, f.handedService, func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges, s.OwnerReferences = nil, ownedBy(group)
		}),
		patch("clients stay at one pod", settings, f.ownService,
			func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }),
		patch("without another's finalizer of a Service", otherFinalizers, f.handedService, func(s *corev1.Service) {
			s.Finalizers, s.OwnerReferences = nil, ownedBy(group)
		}),
		patch("a finalizer of a Service", otherFinalizers, f.ownService,
			func(s *corev1.Service) { s.Finalizers = []string{"example.org/never"} }),
		patch("another owner of a Service", "may not change other owners of these objects",
			f.ownService, func(s *corev1.Service) {
				s.OwnerReferences = append(s.OwnerReferences,
					metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "a"})
			}),
		patch("a Service of another group", "may not move an object from one ElectionGroup to another",
			f.ownService, func(s *corev1.Service) {
				s.Labels, s.OwnerReferences = map[string]string{v1.LabelGroup: "orders"}, ownedBy("orders")
			}),
		patch("a Service of an earlier group of this name", "may not move an object from one ElectionGroup to another",
			f.ownService, func(s *corev1.Service) { s.OwnerReferences[0].UID = "earlier" }),
		create("a Service in the operator's namespace", ownNamespace,
			changed(created(func(*corev1.ServiceSpec) {}), func(s *corev1.Service) { s.Namespace = namespace })),
		patch("a Service without its owner", withoutOwn, f.ownService, func(s *corev1.Service) { s.OwnerReferences = nil }),
		patch("another label of a Service", otherLabels, f.ownService, func(s *corev1.Service) { s.Labels["app"] = "web" }),
		patch("an annotation of a Service", "may not change annotations", f.ownService,
			func(s *corev1.Service) { s.Annotations = map[string]string{"a": "b"} }),
		patch("somebody's Service", notItsOwn, f.service, setPort),
		patch("somebody's Service, taken over", notItsOwn, f.service, func(s *corev1.Service) {
			s.Labels, s.OwnerReferences = map[string]string{v1.LabelGroup: group}, ownedBy(group)
		}),
		remove("somebody's Service", notItsOwn, f.service),
		remove("a Service that was handed over", notItsOwn, f.handedService),
		patch("a selector", selector, f.ownService,
			func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "web"} }),
		patch("an external name", kind, f.ownService, func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
		}),
		patch("another type", kind, f.ownService, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }),
		create("external addresses", kind, created(func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"192.0.2.1"} })),
		create("a chosen cluster IP", "may choose no cluster IP",
			created(func(s *corev1.ServiceSpec) { s.ClusterIP = "10.0.0.77" })),
		create("chosen cluster IPs, without the fields that were written", "may choose no cluster IP",
			changed(created(func(s *corev1.ServiceSpec) { s.ClusterIPs, s.ClusterIP = []string{"10.0.0.77"}, "10.0.0.77" }),
				func(s *corev1.Service) { s.ManagedFields = []metav1.ManagedFieldsEntry{{}} })),
		create("a headless Service", "", created(func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone })),
		create("a load balancer", kind, created(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })),
		create("a Service without an owner", withoutOwn,
			&corev1.Service{ObjectMeta: f.handed("new", group), Spec: somePort()}),
		create("a Service of the system", "may write no Services and EndpointSlices in kube-system",
			changed(created(func(*corev1.ServiceSpec) {}), func(s *corev1.Service) { s.Namespace = "kube-system" })),

		create("the Service of a group", "", created(func(*corev1.ServiceSpec) {})),
		patch("the ports of the Service", "", f.ownService, setPort),
		patch("a Service that was handed over", "", f.handedService, func(s *corev1.Service) {
			setPort(s)
			s.OwnerReferences = ownedBy(group)
		}),
		remove("the Service of a group", "", f.ownService),
	}
}

func (f *fixture) sliceAttempts() []attempt {
	const name, pods = "may write only the EndpointSlice SERVICE-conclave of a Service",
		"may point a Service only at members, which are pods in the namespace of the Service"
	const system = "may write no Services and EndpointSlices in kube-system, and none for the Service kubernetes"
	setAddress := func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.0.0.2"} }
	created := func(namespace, service string) *discoveryv1.EndpointSlice {
		m := f.owned(service + "-conclave")
		m.Namespace = namespace
		return sliceOf(m, service)
	}
	return []attempt{
		patch("somebody's EndpointSlice", notItsOwn, f.slice, setAddress),
		remove("somebody's EndpointSlice", notItsOwn, f.slice),
		create("another slice of a Service", name, sliceOf(f.owned("more"), "web")),
		create("a slice that another controller manages", name,
			changed(created(f.namespace, "web"), func(s *discoveryv1.EndpointSlice) {
				s.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
			})),
		create("the DNS of the cluster", system, created("kube-system", "kube-dns")),
		create("the API server", system, created("default", "kubernetes")),
		create("the operator's webhook", ownNamespace, created(namespace, "conclave-webhook")),
		create("names in place of addresses", "may write only addresses of IPv4 and IPv6",
			changed(created(f.namespace, "new"), func(s *discoveryv1.EndpointSlice) {
				s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeFQDN, []string{"example.org"}
			})),
		patch("more endpoints than members", pods, f.ownSlice,
			func(s *discoveryv1.EndpointSlice) { s.Endpoints = slices.Repeat(s.Endpoints, v1.MaxMembers+1) }),
		patch("several addresses of an endpoint", pods, f.ownSlice, func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses = []string{"10.0.0.1", "192.0.2.1"}
		}),
		patch("an endpoint that isn't a pod", pods, f.ownSlice,
			func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef = nil }),
		patch("another label of a slice", otherLabels, f.ownSlice,
			func(s *discoveryv1.EndpointSlice) { s.Labels["a"] = "b" }),

		create("the slice of a group", "", created(f.namespace, "new")),
		patch("the coordinator", "", f.ownSlice, setAddress),
		patch("no coordinator", "", f.ownSlice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }),
		remove("the slice of a group", "", f.ownSlice),
	}
}

// otherAttempts are about Events, the manager's namespace, and its webhook.
func (f *fixture) otherAttempts() []attempt {
	const (
		events, secret = "may write only Events about ElectionGroups and its Lease",
			"may write only the Secrets conclave-ca and conclave-metrics, of type Opaque"
		caBundle = "may change nothing of its webhook configuration except the CA bundle"
	)
	event := func(kind string) *eventsv1.Event {
		return &eventsv1.Event{
			ObjectMeta: f.metadata("event"), EventTime: metav1.NowMicro(),
			ReportingController: "conclave.dev/manager", ReportingInstance: "a",
			Action: "Observed", Type: corev1.EventTypeNormal, Reason: "Reason",
			Regarding: corev1.ObjectReference{Kind: kind, Namespace: f.namespace, Name: group},
		}
	}
	ofLease := func(kind string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metadata(namespace, "event"), InvolvedObject: corev1.ObjectReference{
			Kind: kind, Namespace: namespace, Name: manager,
		}}
	}
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "conclave"}}
	first := func(change func(*hook)) func(*hooks) {
		return func(c *hooks) { change(&c.Webhooks[0]) }
	}
	return []attempt{
		create("an Event about a pod", events, event("Pod")),
		create("an Event of the core API about a pod", events, ofLease("Pod")),
		create("another Secret", secret, &corev1.Secret{ObjectMeta: metadata(namespace, "other")}),
		create("a token of an account", secret, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "conclave-ca", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
			},
			Type: corev1.SecretTypeServiceAccountToken,
		}),
		create("another Lease", "may write only the Lease conclave-manager",
			&coordinationv1.Lease{ObjectMeta: metadata(namespace, "other")}),
		patch("webhooks for other kinds", caBundle, webhook,
			first(func(w *hook) { w.Rules[0].Resources = []string{"secrets"} })),
		patch("webhooks for all pods", caBundle, webhook, first(func(w *hook) { w.ObjectSelector = nil })),
		patch("webhooks for all namespaces", caBundle, webhook, first(func(w *hook) { w.NamespaceSelector = nil })),
		patch("webhooks for pods without a label in all namespaces", caBundle, webhook, func(c *hooks) {
			c.Webhooks[1].NamespaceSelector.MatchLabels = nil
		}),
		patch("another server of webhooks", caBundle, webhook,
			first(func(w *hook) { w.ClientConfig.Service.Name = "other" })),
		patch("an owner that doesn't exist, so that the webhooks are deleted", caBundle, webhook, func(c *hooks) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "gone", UID: "gone"}}
		}),
		patch("a finalizer, so that the webhooks can't be deleted", caBundle, webhook, func(c *hooks) {
			c.Finalizers = []string{"example.org/never"}
		}),
		patch("another webhook", caBundle, webhook, func(c *hooks) {
			second := c.Webhooks[0].DeepCopy()
			second.Name = "other.conclave.dev"
			c.Webhooks = append(c.Webhooks, *second)
		}),

		create("an Event about a group", "", event("ElectionGroup")),
		create("an Event about the Lease", "", ofLease("Lease")),
		create("the Secret of the CA", "", &corev1.Secret{ObjectMeta: metadata(namespace, "conclave-ca")}),
		create("the Secret with the credentials for metrics", "",
			&corev1.Secret{ObjectMeta: metadata(namespace, "conclave-metrics")}),
		create("the Lease", "", &coordinationv1.Lease{ObjectMeta: metadata(namespace, manager)}),
		patch("the CA bundle", "", webhook, first(func(w *hook) { w.ClientConfig.CABundle = f.caBundle })),
	}
}
