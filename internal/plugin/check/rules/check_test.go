package rules

import (
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
	hook := admissionregistrationv1.MutatingWebhook{Name: "inject.conclave.dev", ClientConfig: admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "conclave-system"}, CABundle: caBundle(t, 1000*time.Hour),
	}}
	f := &Facts{
		Operators: []Operator{{Namespace: "conclave-system", Image: "manager:2", AgentImage: "agent:2", Wanted: 2, Available: 2}},
		Webhook:   &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{hook}},
		Unknown:   map[Fact]string{}, Now: now,
	}
	g := v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	for i := range 3 {
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: fmt.Sprint("ledger-", i), Priority: int32(i + 1)})
		f.Pods = append(f.Pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "bank", Name: fmt.Sprint("ledger-", i),
				Labels:      map[string]string{"app": "ledger", v1.LabelAgent: v1.AgentEnabled, v1.RoleLabel("ledger"): v1.RoleFollower},
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
		s.Protocol.MemberList.Members = append(s.Protocol.MemberList.Members, v1.Member{Pod: fmt.Sprint("ledger-", i), Priority: int32(i + 1)})
	}
	for i, m := range slices.Backward(s.Protocol.MemberList.Members) {
		node, zone, _ := strings.Cut(nodes[i], "/")
		s.Processes = append(s.Processes, v1.Process{Pod: m.Pod, Priority: m.Priority, Status: v1.ProcessNormal, Node: node, Zone: zone})
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
	const notTrue = "unknown webhook configuration conclave: No operator is available, so this may not be true: The API server calls the operator for new pods, and trusts its certificate.\n" +
		"unknown group bank/ledger: No operator is available, so this may not be true: ledger-2 is the coordinator, and all members are up."
	eachPod := func(change func(*corev1.Pod)) func(*Facts) {
		return func(f *Facts) {
			for i := range f.Pods {
				change(&f.Pods[i])
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"no operator": {
			func(f *Facts) { f.Operators = nil }, "problem operator: No operator is installed in this cluster.\n" + notTrue,
		},
		"two operators": {
			func(f *Facts) { f.Operators = append(f.Operators, Operator{Namespace: "a"}) },
			"problem operator: Operators are installed in several namespaces: a, conclave-system.",
		},
		"no replica": {
			func(f *Facts) { f.Operators[0].Available = 0 }, "problem operator in namespace conclave-system: 0 of 2 replicas of manager:2 are available.\n" + notTrue,
		},
		"a replica is missing": {
			func(f *Facts) { f.Operators[0].Available = 1 }, "warning operator in namespace conclave-system: 1 of 2 replicas of manager:2 are available.",
		},
		"an operator without permissions": {
			func(f *Facts) { f.Operators[0].Lacks = []string{"create tokenreviews"} },
			"problem operator in namespace conclave-system: It lacks the permission to create tokenreviews.",
		},
		"a single replica": {
			func(f *Facts) { f.Operators[0].Wanted, f.Operators[0].Available = 1, 1 },
			"warning operator in namespace conclave-system: 1 of 1 replicas of manager:2 are available.",
		},
		"no webhook": {
			func(f *Facts) { f.Webhook = nil }, "warning webhook configuration conclave: There is no webhook, so new pods get no agents.",
		},
		"a webhook of another operator": {
			func(f *Facts) { f.Operators[0].Namespace = "other" },
			"problem webhook inject.conclave.dev: It calls the namespace conclave-system, but the operator is in other.",
		},
		"a configuration without webhooks": {
			func(f *Facts) { f.Webhook.Webhooks = nil }, "problem webhook configuration conclave: It has no webhooks, so new pods get no agents.",
		},
		"a webhook without a CA": {
			func(f *Facts) { f.Webhook.Webhooks[0].ClientConfig.CABundle = nil }, "problem webhook inject.conclave.dev: It has no CA bundle.",
		},
		"an expired CA": {
			func(f *Facts) { f.Now = now.Add(1001 * time.Hour) }, "problem webhook inject.conclave.dev: Its CA expired at 2027-01-02T04:00:00Z.",
		},
		"a CA that expires soon": {
			func(f *Facts) { f.Now = now.Add(900 * time.Hour) }, "warning webhook inject.conclave.dev: Its CA expires at 2027-01-02T04:00:00Z.",
		},
		"the next CA of a bundle": {
			func(f *Facts) {
				f.Now = now.Add(1001 * time.Hour)
				hook := &f.Webhook.Webhooks[0].ClientConfig
				hook.CABundle = append(hook.CABundle, caBundle(t, 9000*time.Hour)...)
			}, "",
		},
		"a group without a coordinator": {
			func(f *Facts) { f.Groups[0].Status.Coordinator = nil }, "problem group bank/ledger: It has no coordinator.",
		},
		"a condition": {
			func(f *Facts) {
				f.Groups[0].Status.Conditions = []metav1.Condition{{Type: "Degraded", Status: "True", Reason: "MembersDown", Message: "2 of 5 members are down"}}
			}, "problem group bank/ledger: Degraded is True (MembersDown): 2 of 5 members are down.",
		},
		"a group that can't fail over, with a condition": {
			func(f *Facts) {
				f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Status.Protocol.MemberList.Members[:2]
				f.Groups[0].Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "NoFailover", Message: "The group is healthy, but no other member can take over"}}
			},
			"warning group bank/ledger: Ready is True (NoFailover): The group is healthy, but no other member can take over.",
		},
		"two members": {
			func(f *Facts) {
				f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Status.Protocol.MemberList.Members[:2]
			},
			"warning group bank/ledger: It has two members. A coordinator needs both, so it can't fail over.",
		},
		"two members in Available mode": {
			func(f *Facts) {
				f.Groups[0].Spec.Safety.Mode = v1.Available
				f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Status.Protocol.MemberList.Members[:2]
			}, "",
		},
		"one eligible member": {
			func(f *Facts) {
				f.Groups[0].Status.Protocol.MemberList.Members[0].Priority, f.Groups[0].Status.Protocol.MemberList.Members[1].Priority = 0, 0
			}, "warning group bank/ledger: Only one member has a priority above 0, so no other can become coordinator.",
		},
		"leases that lapsed": {
			func(f *Facts) { f.Groups[0].Status.History = tenures(v1.EndLapse, v1.EndCrash, v1.EndLapse) },
			"warning group bank/ledger: In the last day, 2 coordinators lost their lease: no majority answered within the lease (spec.safety.leaseMillis: 500, and longer while renewals are late).",
		},
		"a short drain timeout": {
			func(f *Facts) {
				f.Groups[0].Spec.Safety.LeaseMillis, f.Groups[0].Spec.Timing.DrainMillis = 5000, new(int32(100))
			},
			"warning group bank/ledger: spec.timing.drainMillis (100) is shorter than spec.safety.leaseMillis (5000), so a coordinator must stop when its agent hasn't answered for 100 ms.",
		},
		"no drain timeout": {
			func(f *Facts) { f.Groups[0].Spec.Timing.DrainMillis = new(int32(0)) },
			"warning group bank/ledger: spec.timing.drainMillis is 0, so agents promise no time: an application with a session can't act as coordinator.",
		},
		"a short drain timeout without a lease": {
			func(f *Facts) {
				f.Groups[0].Spec.Safety.Mode, f.Groups[0].Spec.Timing.DrainMillis = v1.Available, new(int32(100))
			}, "",
		},
		"a lease that lapsed once": {
			func(f *Facts) { f.Groups[0].Status.History = tenures(v1.EndLapse, v1.EndSilence, v1.EndCrash) }, "",
		},
		"leases that lapsed long ago": {
			func(f *Facts) {
				f.Groups[0].Status.History = tenures(v1.EndLapse, v1.EndLapse)
				f.Now = now.Add(25 * time.Hour)
			}, "",
		},
		"all members share a node": {
			func(f *Facts) { place(f, "n1", "n1", "n1") },
			"warning group bank/ledger: The node n1 has 3 of 3 members (ledger-2, ledger-1 and ledger-0): if it fails, there is no majority.",
		},
		"two members share a node": {
			func(f *Facts) { place(f, "n1", "n2", "n1") },
			"warning group bank/ledger: The node n1 has 2 of 3 members (ledger-2 and ledger-0): if it fails, there is no majority.",
		},
		"each member has a node": {
			func(f *Facts) { place(f, "n1", "n2", "n3") }, "",
		},
		"each member has a node, and one is down": {
			func(f *Facts) { place(f, "n1", "n2", "n3"); f.Groups[0].Status.Processes[2].Status = v1.ProcessCrashed }, "",
		},
		"two members share a node in Available mode": {
			func(f *Facts) { place(f, "n1", "n2", "n1"); f.Groups[0].Spec.Safety.Mode = v1.Available }, "",
		},
		"all members share a node in Available mode": {
			func(f *Facts) { place(f, "n1", "n1", "n1"); f.Groups[0].Spec.Safety.Mode = v1.Available },
			"warning group bank/ledger: The node n1 has 3 of 3 members (ledger-2, ledger-1 and ledger-0): if it fails, there is no eligible member.",
		},
		"the only eligible member shares a node": {
			func(f *Facts) {
				f.Groups[0].Spec.Safety.Mode = v1.Available
				f.Groups[0].Status.Protocol.MemberList.Members[0].Priority, f.Groups[0].Status.Protocol.MemberList.Members[1].Priority = 0, 0
				place(f, "n1", "n2", "n1")
			}, "warning group bank/ledger: Only one member has a priority above 0, so no other can become coordinator.",
		},
		"two members of two share a node": {
			func(f *Facts) {
				f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Status.Protocol.MemberList.Members[:2]
				place(f, "n1", "n1")
			}, "warning group bank/ledger: It has two members. A coordinator needs both, so it can't fail over.",
		},
		"a zone has two members of three, and there are two zones": {
			func(f *Facts) { place(f, "n1/east", "n2/east", "n3/west") }, "",
		},
		"a zone has three members of five, and there are three zones": {
			func(f *Facts) { place(f, "n1/east", "n2/east", "n3/east", "n4/west", "n5/middle") },
			"warning group bank/ledger: The zone east has 3 of 5 members (ledger-2, ledger-1 and ledger-0): if it fails, there is no majority.",
		},
		"a node and its zone have three members of five": {
			func(f *Facts) { place(f, "n1/east", "n1/east", "n1/east", "n4/west", "n5/middle") },
			"warning group bank/ledger: The node n1 has 3 of 5 members (ledger-2, ledger-1 and ledger-0): if it fails, there is no majority.",
		},
		"another group is checked": {
			func(f *Facts) {
				f.Groups[0].Status.Coordinator = nil
				f.Group = "other"
			}, "",
		},
		"a label with the wrong value": {
			eachPod(func(p *corev1.Pod) { p.Labels[v1.LabelAgent] = "true" }),
			`problem pod bank/ledger-0 and 2 more: The label conclave.dev/agent is "true", so the pod has not opted in.`,
		},
		"pods that opted out": {
			eachPod(func(p *corev1.Pod) { p.Labels[v1.LabelAgent] = "disabled" }), "",
		},
		"a pod without an agent": {
			func(f *Facts) { f.Pods[1].Spec.InitContainers = nil },
			"problem pod bank/ledger-1: It has opted in, but has no agent: it was created without the webhook.",
		},
		"an annotation without the label": {
			func(f *Facts) { f.Pods[1].Spec.InitContainers = nil; delete(f.Pods[1].Labels, v1.LabelAgent) },
			"problem pod bank/ledger-1: It has the annotation conclave.dev/groups, and has not opted in.",
		},
		"a program, and a group that elects pods without it": {
			func(f *Facts) { f.Pods[1].Annotations[v1.AnnotationExec] = "ledger/settle" },
			"warning pod bank/ledger-1: The group ledger may elect it before it can run its program (annotation conclave.dev/exec), or while it can't.",
		},
		"a program, and a group that doesn't": {
			func(f *Facts) {
				f.Pods[1].Annotations[v1.AnnotationExec] = "ledger"
				f.Groups[0].Spec.Application.Session = v1.SessionRequired
			}, "",
		},
		"keys with typing errors": {
			func(f *Facts) {
				f.Pods[0].Labels["conclave.dev/agnet"] = "enabled"
				f.Pods[0].Annotations["conclave.dev/group"] = "ledger"
			},
			"warning pod bank/ledger-0: The label conclave.dev/agnet means nothing to Conclave (did you mean conclave.dev/agent?).\n" +
				"warning pod bank/ledger-0: The annotation conclave.dev/group means nothing to Conclave (did you mean conclave.dev/groups?).",
		},
		"a group that doesn't exist": {
			func(f *Facts) { f.Pods[0].Annotations[v1.AnnotationGroups] = "ledger, leger" },
			"warning pod bank/ledger-0: It names the group leger, which doesn't exist in its namespace (did you mean ledger?).",
		},
		"a group of which the pod isn't a member": {
			func(f *Facts) {
				f.Groups[0].Spec.Members = f.Groups[0].Spec.Members[:2]
				f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Spec.Members
				f.Groups[0].Spec.Safety.Mode = v1.Available
			},
			"warning pod bank/ledger-2: It names the group ledger, but isn't a member: spec.members doesn't contain it, and spec.selector doesn't match its labels.",
		},
		"a pod in no group": {
			func(f *Facts) {
				f.Groups[0].Spec.Members = f.Groups[0].Spec.Members[:2]
				f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Spec.Members
				f.Groups[0].Spec.Safety.Mode = v1.Available
				delete(f.Pods[2].Annotations, v1.AnnotationGroups)
			},
			"warning pod bank/ledger-2: It has an agent, but no group lists or selects it: it takes part in no election.",
		},
		"a pod of which the group warns": {
			func(f *Facts) {
				f.Groups[0].Spec.Members = f.Groups[0].Spec.Members[:2]
				f.Groups[0].Status.Protocol.MemberList.Members = f.Groups[0].Spec.Members
				f.Groups[0].Spec.Safety.Mode = v1.Available
				f.Groups[0].Status.Conditions = append(f.Groups[0].Status.Conditions, metav1.Condition{
					Type: string(v1.ConditionUnlisted), Status: metav1.ConditionTrue, Reason: string(v1.ReasonPodsUnlisted), Message: "Pod ledger-2 has an agent",
				})
				delete(f.Pods[2].Annotations, v1.AnnotationGroups)
			},
			"warning group bank/ledger: Pod ledger-2 has an agent.",
		},
		"a group that the pod's annotation doesn't name": {
			func(f *Facts) { f.Pods[0].Annotations[v1.AnnotationGroups] = "leger" },
			"warning pod bank/ledger-0: The group ledger lists or selects it, but its annotation conclave.dev/groups doesn't name the group, so it isn't a member.\n" +
				"warning pod bank/ledger-0: It names the group leger, which doesn't exist in its namespace (did you mean ledger?).",
		},
		"groups that the operator records later": {
			func(f *Facts) {
				delete(f.Pods[0].Annotations, v1.AnnotationGroups)
				f.Pods[0].Annotations[v1.AnnotationSelectedBy] = ""
			}, "",
		},
		"a group that the user may not read": {
			func(f *Facts) {
				f.Group, f.OnlyGroup = "ledger", true
				f.Pods[0].Annotations[v1.AnnotationGroups] = "ledger, audit"
			}, "",
		},
		"pods that have finished": {
			func(f *Facts) {
				f.Pods[0].Status.Phase, f.Pods[0].Spec.InitContainers = corev1.PodFailed, nil
				f.Pods[1].Status.Phase, f.Pods[1].Spec.InitContainers[0].Image = corev1.PodSucceeded, "agent:1"
			}, "",
		},
		"other agents than the operator injects": {
			func(f *Facts) {
				f.Operators[0].AgentImage = "agent:3"
				f.Pods[0].Spec.InitContainers[0].Image = "agent:1"
			},
			"warning agents: The operator in namespace conclave-system injects agent:3. Running pods also have agent:1 (1), agent:2 (2).",
		},
		"settings of the agent": {
			func(f *Facts) {
				f.Pods[0].Annotations["conclave.dev/agent-uid"], f.Pods[0].Annotations["conclave.dev/agent-log-level"] = "root", "loud"
				f.Pods[1].Annotations["conclave.dev/agent-uid"] = "1000"
			},
			"problem pod bank/ledger-0: The annotation conclave.dev/agent-uid must be a user ID from 1 to 2147483647, or inherit, got \"root\".\n" +
				"problem pod bank/ledger-0: The annotation conclave.dev/agent-log-level must be debug, info, warn or error, got \"loud\".",
		},
		"settings of a pod that opted out": {
			func(f *Facts) {
				f.Pods[0].Spec.InitContainers, f.Pods[0].Labels[v1.LabelAgent] = nil, "disabled"
				f.Pods[0].Annotations["conclave.dev/agent-uid"] = "root"
			}, "",
		},
		"the proxy of a mesh": {
			eachPod(func(p *corev1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "linkerd-proxy"})
				p.Annotations["config.linkerd.io/skip-inbound-ports"] = "7373,7375"
			}),
			"warning pod bank/ledger-0 and 2 more: A proxy intercepts connections with its agent (the container linkerd-proxy): a crashed process is noticed by its silence only.",
		},
		"a proxy that excludes the agent's ports": {
			eachPod(func(p *corev1.Pod) {
				p.Spec.InitContainers = append([]corev1.Container{{Name: "istio-proxy"}}, p.Spec.InitContainers...)
				p.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "80,7373,7375"
				p.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "7373"
			}), "",
		},
		"ambient mode": {
			func(f *Facts) { f.Pods[0].Annotations["ambient.istio.io/redirection"] = "enabled" },
			"warning pod bank/ledger-0: A proxy intercepts connections with its agent (Istio's ambient mode): a crashed process is noticed by its silence only.",
		},
		"no permission to read autoscalers": {
			func(f *Facts) { f.Unknown[Autoscalers] = "forbidden" }, "unknown the autoscalers: forbidden",
		},
		"no permissions": {
			func(f *Facts) {
				f.Operators, f.Webhook, f.Pods[0].Annotations[v1.AnnotationGroups] = nil, nil, "x"
				f.Unknown = map[Fact]string{Operators: "forbidden", Webhook: "forbidden", Groups: "forbidden"}
			}, "unknown the operator: forbidden\nunknown the webhook configuration: forbidden\nunknown the groups: forbidden",
		},
		"the worst comes first": {
			func(f *Facts) {
				f.Operators[0].Available = 1
				f.Groups[0].Status.Coordinator = nil
				f.Unknown[Pods] = "forbidden"
			},
			"problem group bank/ledger: It has no coordinator.\nwarning operator in namespace conclave-system: 1 of 2 replicas of manager:2 are available.\nunknown the pods: forbidden",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			c.change(f)
			findings := Run(f)
			if got := format(findings); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			for _, found := range findings {
				if (found.Level == Problem || found.Level == Warning) && found.Advice == "" {
					t.Errorf("%s: got no advice", found.Message)
				}
			}
		})
	}
}
