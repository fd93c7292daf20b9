package rules

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// caBundle returns a CA bundle that expires after some time.
func caBundle(t *testing.T, after time.Duration) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: now.Add(after)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.Succeed(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// healthy returns the facts about an installation with one group, in which all is well.
func healthy(t *testing.T) *Facts {
	t.Helper()
	hook := admissionregistrationv1.MutatingWebhook{
		Name: "inject.conclave.dev", ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service:  &admissionregistrationv1.ServiceReference{Namespace: "conclave-system"},
			CABundle: caBundle(t, 1000*time.Hour),
		},
	}
	f := &Facts{
		Operators: []Operator{
			{Namespace: "conclave-system", Image: "manager:2", AgentImage: "agent:2", Wanted: 2, Available: 2},
		},
		Webhook: &admissionregistrationv1.MutatingWebhookConfiguration{
			Webhooks: []admissionregistrationv1.MutatingWebhook{hook},
		},
		Unknown: map[Fact]string{}, Now: now,
	}
	g := v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	for i := range 3 {
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: fmt.Sprint("ledger-", i), Priority: int32(i + 1)})
		f.Pods = append(f.Pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "bank", Name: fmt.Sprint("ledger-", i),
				Labels: map[string]string{"app": "ledger", v1.LabelAgent: v1.AgentEnabled, v1.RoleLabel(
					"ledger"): v1.RoleFollower},
				Annotations: map[string]string{v1.AnnotationGroups: "ledger", v1.AnnotationPriority: "1"},
			},
			Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: v1.AgentContainer, Image: "agent:2"}}},
		})
	}
	g.Spec.Safety.LeaseMillis = 500
	g.Generation, g.Status.ObservedGeneration = 1, 1
	g.Status.Protocol.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: g.Spec.Members}
	g.Status.Coordinator = &v1.Coordinator{Pod: "ledger-2", Priority: 3, Term: 7}
	f.Groups = []v1.ElectionGroup{g}
	return f
}

// tenures returns a history: the present tenure, and before it those that ended for these reasons.
func tenures(ends ...v1.EndReason) []v1.Tenure {
	all := []v1.Tenure{{Pod: "ledger-2"}}
	for _, end := range ends {
		all = append(all, v1.Tenure{Pod: "ledger-2", EndReason: end, Until: new(metav1.NewMicroTime(now))})
	}
	return all
}

// place says on which node, and in which zone if it follows a slash, each member of the group is.
// It adds members to the list if there are more nodes.
func place(f *Facts, nodes ...string) {
	s := &f.Groups[0].Status
	for i := len(s.Protocol.MemberList.Members); i < len(nodes); i++ {
		s.Protocol.MemberList.Members = append(s.Protocol.MemberList.Members,
			v1.Member{Pod: fmt.Sprint("ledger-", i), Priority: int32(i + 1)})
	}
	for i, m := range slices.Backward(s.Protocol.MemberList.Members) {
		node, zone, _ := strings.Cut(nodes[i], "/")
		s.Processes = append(s.Processes,
			v1.Process{Pod: m.Pod, Priority: m.Priority, Status: v1.ProcessNormal, Node: node, Zone: zone})
	}
}

// format formats findings that aren't OK.
func format(findings []Finding) string {
	var lines []string
	for _, f := range findings {
		if f.Level != OK {
			lines = append(lines, fmt.Sprintf("%s %s: %s", f.Level, f.Object, f.Message))
		}
	}
	return strings.Join(lines, "\n")
}

func TestHealthyInstallation(t *testing.T) {
	findings := Run(healthy(t))
	if len(findings) != 4 || format(findings) != "" {
		t.Errorf("got %+v, want four checks without a problem", findings)
	}
}

func TestFindings(t *testing.T) {
	cases := golden.Open(t, "testdata/findings.txt")
	eachPod := func(change func(*corev1.Pod)) func(*Facts) {
		return func(f *Facts) {
			for i := range f.Pods {
				change(&f.Pods[i])
			}
		}
	}
	for name, change := range map[string]func(*Facts){
		"no operator":                      func(f *Facts) { f.Operators = nil },
		"two operators":                    func(f *Facts) { f.Operators = append(f.Operators, Operator{Namespace: "a"}) },
		"no replica":                       func(f *Facts) { f.Operators[0].Available = 0 },
		"a replica is missing":             func(f *Facts) { f.Operators[0].Available = 1 },
		"an operator without permissions":  func(f *Facts) { f.Operators[0].Lacks = []string{"create tokenreviews"} },
		"a single replica":                 func(f *Facts) { f.Operators[0].Wanted, f.Operators[0].Available = 1, 1 },
		"no webhook":                       func(f *Facts) { f.Webhook = nil },
		"a webhook of another operator":    func(f *Facts) { f.Operators[0].Namespace = "other" },
		"a configuration without webhooks": func(f *Facts) { f.Webhook.Webhooks = nil },
		"a webhook without a CA":           func(f *Facts) { f.Webhook.Webhooks[0].ClientConfig.CABundle = nil },
		"an expired CA":                    func(f *Facts) { f.Now = now.Add(1001 * time.Hour) },
		"a CA that expires soon":           func(f *Facts) { f.Now = now.Add(900 * time.Hour) },
		"the next CA of a bundle": func(f *Facts) {
			f.Now = now.Add(1001 * time.Hour)
			hook := &f.Webhook.Webhooks[0].ClientConfig
			hook.CABundle = append(hook.CABundle, caBundle(t, 9000*time.Hour)...)
		},
		"a group without a coordinator": func(f *Facts) { f.Groups[0].Status.Coordinator = nil },
		"a condition": func(f *Facts) {
			f.Groups[0].Status.Conditions = []metav1.Condition{
				{Type: "Degraded", Status: "True", Reason: "MembersDown", Message: "2 of 5 members are down"},
			}
		},
		"a group that can't fail over, with a condition": func(f *Facts) {
			f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Status.Protocol.MemberList.Members[:2]
			f.Groups[0].Status.Conditions = []metav1.Condition{{
				Type: "Ready", Status: "True", Reason: "NoFailover",
				Message: "The group is healthy, but no other member can take over",
			}}
		},
		"two members": func(f *Facts) {
			f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Status.Protocol.MemberList.Members[:2]
		},
		"two members in Available mode": func(f *Facts) {
			f.Groups[0].Spec.Safety.Mode = v1.Available
			f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Status.Protocol.MemberList.Members[:2]
		},
		"one eligible member": func(f *Facts) {
			members := f.Groups[0].Status.Protocol.MemberList.Members
			members[0].Priority, members[1].Priority = 0, 0
		},
		"leases that lapsed": func(f *Facts) { f.Groups[0].Status.History = tenures(v1.EndLapse, v1.EndCrash, v1.EndLapse) },
		"a short drain timeout": func(f *Facts) {
			f.Groups[0].Spec.Safety.LeaseMillis, f.Groups[0].Spec.Timing.DrainMillis = 5000, new(int32(100))
		},
		"no drain timeout": func(f *Facts) { f.Groups[0].Spec.Timing.DrainMillis = new(int32(0)) },
		"a short drain timeout without a lease": func(f *Facts) {
			f.Groups[0].Spec.Safety.Mode, f.Groups[0].Spec.Timing.DrainMillis = v1.Available, new(int32(100))
		},
		"a lease that lapsed once": func(f *Facts) {
			f.Groups[0].Status.History = tenures(v1.EndLapse, v1.EndSilence, v1.EndCrash)
		},
		"leases that lapsed long ago": func(f *Facts) {
			f.Groups[0].Status.History = tenures(v1.EndLapse, v1.EndLapse)
			f.Now = now.Add(25 * time.Hour)
		},
		"all members share a node": func(f *Facts) { place(f, "n1", "n1", "n1") },
		"two members share a node": func(f *Facts) { place(f, "n1", "n2", "n1") },
		"each member has a node":   func(f *Facts) { place(f, "n1", "n2", "n3") },
		"each member has a node, and one is down": func(f *Facts) {
			place(f, "n1", "n2", "n3")
			f.Groups[0].Status.Processes[2].Status = v1.ProcessCrashed
		},
		"two members share a node in Available mode": func(f *Facts) {
			place(f, "n1", "n2", "n1")
			f.Groups[0].Spec.Safety.Mode = v1.Available
		},
		"all members share a node in Available mode": func(f *Facts) {
			place(f, "n1", "n1", "n1")
			f.Groups[0].Spec.Safety.Mode = v1.Available
		},
		"the only eligible member shares a node": func(f *Facts) {
			f.Groups[0].Spec.Safety.Mode = v1.Available
			members := f.Groups[0].Status.Protocol.MemberList.Members
			members[0].Priority, members[1].Priority = 0, 0
			place(f, "n1", "n2", "n1")
		},
		"two members of two share a node": func(f *Facts) {
			f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Status.Protocol.MemberList.Members[:2]
			place(f, "n1", "n1")
		},
		"a zone has two members of three, and there are two zones": func(f *Facts) {
			place(f, "n1/east", "n2/east", "n3/west")
		},
		"a zone has three members of five, and there are three zones": func(f *Facts) {
			place(f, "n1/east", "n2/east", "n3/east", "n4/west", "n5/middle")
		},
		"a node and its zone have three members of five": func(f *Facts) {
			place(f, "n1/east", "n1/east", "n1/east", "n4/west", "n5/middle")
		},
		"another group is checked": func(f *Facts) {
			f.Groups[0].Status.Coordinator = nil
			f.Group = "other"
		},
		"a label with the wrong value": eachPod(func(p *corev1.Pod) { p.Labels[v1.LabelAgent] = "true" }),
		"pods that opted out":          eachPod(func(p *corev1.Pod) { p.Labels[v1.LabelAgent] = "disabled" }),
		"a pod without an agent":       func(f *Facts) { f.Pods[1].Spec.InitContainers = nil },
		"an annotation without the label": func(f *Facts) {
			f.Pods[1].Spec.InitContainers = nil
			delete(f.Pods[1].Labels, v1.LabelAgent)
		},
		"a program, and a group that elects pods without it": func(f *Facts) {
			f.Pods[1].Annotations[v1.AnnotationExec] = "ledger/settle"
		},
		"a program, and a group that doesn't": func(f *Facts) {
			f.Pods[1].Annotations[v1.AnnotationExec] = "ledger"
			f.Groups[0].Spec.Application.Session = v1.SessionRequired
		},
		"keys with typing errors": func(f *Facts) {
			f.Pods[0].Labels["conclave.dev/agnet"] = "enabled"
			f.Pods[0].Annotations["conclave.dev/group"] = "ledger"
		},
		"a group that doesn't exist": func(f *Facts) { f.Pods[0].Annotations[v1.AnnotationGroups] = "ledger, leger" },
		"a group of which the pod isn't a member": func(f *Facts) {
			f.Groups[0].Spec.Members = f.Groups[0].Spec.Members[:2]
			f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Spec.Members
			f.Groups[0].Spec.Safety.Mode = v1.Available
		},
		"a pod in no group": func(f *Facts) {
			f.Groups[0].Spec.Members = f.Groups[0].Spec.Members[:2]
			f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Spec.Members
			f.Groups[0].Spec.Safety.Mode = v1.Available
			delete(f.Pods[2].Annotations, v1.AnnotationGroups)
		},
		"a group that the pod's annotation doesn't name": func(f *Facts) {
			f.Pods[0].Annotations[v1.AnnotationGroups] = "leger"
		},
		"groups that the operator records later": func(f *Facts) {
			delete(f.Pods[0].Annotations, v1.AnnotationGroups)
			f.Pods[0].Annotations[v1.AnnotationSelectedBy] = ""
		},
		"a group that the user may not read": func(f *Facts) {
			f.Group, f.OnlyGroup = "ledger", true
			f.Pods[0].Annotations[v1.AnnotationGroups] = "ledger, audit"
		},
		"pods that have finished": func(f *Facts) {
			f.Pods[0].Status.Phase, f.Pods[0].Spec.InitContainers = corev1.PodFailed, nil
			f.Pods[1].Status.Phase, f.Pods[1].Spec.InitContainers[0].Image = corev1.PodSucceeded, "agent:1"
		},
		"other agents than the operator injects": func(f *Facts) {
			f.Operators[0].AgentImage = "agent:3"
			f.Pods[0].Spec.InitContainers[0].Image = "agent:1"
		},
		"settings of the agent": func(f *Facts) {
			f.Pods[0].Annotations["conclave.dev/agent-uid"], f.Pods[0].Annotations["conclave.dev/agent-log-level"] = "root",
				"loud"
			f.Pods[1].Annotations["conclave.dev/agent-uid"] = "1000"
		},
		"settings of a pod that opted out": func(f *Facts) {
			f.Pods[0].Spec.InitContainers, f.Pods[0].Labels[v1.LabelAgent] = nil, "disabled"
			f.Pods[0].Annotations["conclave.dev/agent-uid"] = "root"
		},
		"the proxy of a mesh": eachPod(func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "linkerd-proxy"})
			p.Annotations["config.linkerd.io/skip-inbound-ports"] = "7373,7375"
		}),
		"a proxy that excludes the agent's ports": eachPod(func(p *corev1.Pod) {
			p.Spec.InitContainers = append([]corev1.Container{{Name: "istio-proxy"}}, p.Spec.InitContainers...)
			p.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "80,7373,7375"
			p.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "7373"
		}),
		"a proxy between agents and the application": func(f *Facts) {
			for i, excluded := range []string{"", "7373,7375,8000-9000"} {
				p := &f.Pods[i]
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "linkerd-proxy"})
				p.Annotations["config.linkerd.io/skip-inbound-ports"] = cmp.Or(excluded, "7373,7375")
				p.Annotations["config.linkerd.io/skip-outbound-ports"] = cmp.Or(excluded, "7373,8080")
			}
			f.Groups[0].Spec.Service = &v1.CoordinatorService{Via: v1.ViaAgents, Ports: []v1.ServicePort{{Port: 8080}}}
		},
		"ambient mode": func(f *Facts) { f.Pods[0].Annotations["ambient.istio.io/redirection"] = "enabled" },
		"no permissions": func(f *Facts) {
			f.Operators, f.Webhook, f.Pods[0].Annotations[v1.AnnotationGroups] = nil, nil, "x"
			f.Unknown = map[Fact]string{Operators: "forbidden", Webhook: "forbidden", Groups: "forbidden"}
		},
		"the worst comes first": func(f *Facts) {
			f.Operators[0].Available = 1
			f.Groups[0].Status.Coordinator = nil
			f.Unknown[Pods] = "forbidden"
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			change(f)
			findings := Run(f)
			cases.Compare(t, name, format(findings))
			for _, found := range findings {
				if (found.Level == Problem || found.Level == Warning) && found.Advice == "" {
					t.Errorf("%s: got no advice", found.Message)
				}
			}
		})
	}
}
