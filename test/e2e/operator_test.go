package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// samples are what the operator is tried with, in a namespace of their own.
const (
	samples        = "conclave-samples"
	samplesFolder  = top + "/config/samples"
	operatorsSpace = "conclave-system"
)

// electionGroup is what is looked at in one.
type electionGroup struct {
	Metadata struct {
		Name, UID  string
		Generation int64
	}
	Status struct {
		ObservedGeneration int64
		Term               int64
		Coordinator        *struct {
			Pod       string
			Term      int64
			ElectedAt time.Time
		}
		Processes []struct {
			Pod, Status, Reason, Message string
			Priority                     int
		}
		MemberList *struct {
			Version int
			State   string
		}
		Conditions []struct{ Type, Status, Reason, Message string }
	}
}

// testOperator does what a user does on the first day, and then has everything befall the coordinator, the operator and the
// API server. Its parts build on each other, so the first that fails ends it.
func testOperator(c *cluster) {
	if c.own == nil {
		c.t.Skip("it ends processes and switches off machines: that takes a cluster of its own")
	}
	c.load(makeImage(c.t, "./cmd/manager", "conclave/manager:e2e"))
	c.load(makeImage(c.t, "./cmd/agent", "conclave/agent:e2e"))
	install(c, operatorsSpace)
	c.makeNamespace(samples)
	c.t.Cleanup(func() { explainOperator(c) })
	s := ledger{c, observe(c.t, c.name, "ledger", askEvery), map[string]electionGroup{}}
	for _, part := range []struct {
		name string
		test func(ledger)
	}{
		{"a StatefulSet of five has a coordinator, a table, labels and a Service", testFirstGroup},
		{"every sample elects", testSamples},
		{"settings change while the group runs", testSettings},
		{"pods that were there before the group have no agent, and are told how to get one", testEarly},
		{"pods on the network of their nodes elect", testHostNetwork},
		{"all follows when the coordinator's agent is killed", testOperatorKilledAgent},
		{"all follows when the coordinator's pod is deleted by force", testOperatorDeletedPod},
		{"a pod that is about to go hands over first", testOperatorGracefulDelete},
		{"a drained node's coordinator hands over", testCordon},
		{"a group is deleted and made anew", testAnew},
		{"a Deployment becomes a crowd, nobody, and a few again", testCrowd},
		{"agents elect without the operator, and the status catches up", testWithoutOperator},
		{"agents elect without the API server, and the status catches up", testWithoutServer},
		{"idle groups cause no requests", testIdle},
		{"the operator is removed, and installed into another namespace", testElsewhere},
	} {
		passed := c.t.Run(part.name, func(t *testing.T) { part.test(s.in(t)) })
		if found := s.contradiction(); found != "" {
			c.t.Fatal(found)
		}
		if !passed {
			c.t.FailNow()
		}
	}
}

// installer is what the operator is installed from, and removed by.
var installer = filepath.Join(top, "dist", "install.yaml")

// install installs the operator as docs/operator.md says.
func install(c *cluster, namespace string) {
	c.t.Helper()
	run(c.t, "make", "-C", top, "build-installer", "IMG=conclave/manager:e2e", "AGENT_IMG=conclave/agent:e2e", "NAMESPACE="+namespace)
	c.kubectl("apply", "--server-side", "-f", installer)
	c.kubectl("wait", "deployment/conclave-manager", "--namespace", namespace, "--for=condition=Available", "--timeout", "2m",
		"--request-timeout", "0")
}

// explainOperator shows after a failure what there was to see.
func explainOperator(c *cluster) {
	if !c.t.Failed() {
		return
	}
	for _, look := range [][]string{
		{"get", "electiongroups", "--namespace", samples, "-o", "yaml"},
		{"get", "pods", "--namespace", samples, "-o", "wide"},
		{"get", "configmap", "conclave-ledger", "--namespace", samples, "-o", "yaml"},
		{"logs", "--namespace", operatorsSpace, "-l", "app.kubernetes.io/name=conclave", "--tail", "200", "--prefix"},
		{"logs", "--namespace", samples, "ledger-4", "-c", "conclave-agent", "--tail", "60"},
		{"logs", "--namespace", samples, "ledger-0", "-c", "conclave-agent", "--tail", "60"},
	} {
		said, err := c.try(look...)
		c.t.Logf("kubectl %s (%v):\n%s", strings.Join(look, " "), err, said)
	}
}

func (l ledger) group(name string) electionGroup { return l.groupIn(samples, name) }

func (l ledger) groupIn(namespace, name string) electionGroup {
	l.t.Helper()
	var g electionGroup
	if err := json.Unmarshal([]byte(l.kubectl("get", "electiongroup", name, "--namespace", namespace, "-o", "json")), &g); err != nil {
		l.t.Fatal(err)
	}
	// No term goes back, whatever befalls a group. One that is made anew has none at first.
	key := namespace + "/" + name
	was := l.seen[key]
	if term := g.Status.Term; term < was.Status.Term && (term > 0 || g.Metadata.UID == was.Metadata.UID) {
		l.t.Errorf("the status of %s is in term %d, and was in %d", name, term, was.Status.Term)
	}
	if g.Status.Term >= was.Status.Term {
		l.seen[key] = g
	}
	return g
}

// rows is the process status table in one line.
func (g electionGroup) rows() string {
	var rows []string
	for _, p := range g.Status.Processes {
		rows = append(rows, p.Pod+" "+p.Status+p.Reason)
	}
	return strings.Join(rows, ", ")
}

func (g electionGroup) condition(of string) string {
	for _, c := range g.Status.Conditions {
		if c.Type == of {
			return c.Status
		}
	}
	return ""
}

func (g electionGroup) coordinator() string {
	if g.Status.Coordinator == nil {
		return ""
	}
	return g.Status.Coordinator.Pod
}

// leads waits until the status, the labels and the Service say that one leads.
func (l ledger) leads(by string) electionGroup {
	l.t.Helper()
	l.eventually(soon, "the status says that "+by+" leads", func() bool { return l.group("ledger").coordinator() == by })
	l.eventually(soon, by+" alone has the coordinator's label", func() bool {
		return l.kubectl("get", "pods", "--namespace", samples, "-l", "role.conclave.dev/ledger=coordinator",
			"-o", "jsonpath={.items[*].metadata.name}") == by
	})
	l.eventually(soon, "the Service leads to "+by, func() bool {
		to := l.kubectl("get", "endpointslices", "--namespace", samples, "-l", "kubernetes.io/service-name=ledger-coordinator",
			"-o", "jsonpath={.items[*].endpoints[*].addresses[*]}")
		return to != "" && to == l.kubectl("get", "pod", by, "--namespace", samples, "-o", "jsonpath={.status.podIP}")
	})
	return l.group("ledger")
}

// complete waits until the highest leads and all others follow.
func (l ledger) complete() {
	l.t.Helper()
	const want = "ledger-4 Coordinator, ledger-3 Normal, ledger-2 Normal, ledger-1 Normal, ledger-0 Normal"
	l.eventually(soon, "all members are up, and the highest leads", func() bool { return l.group("ledger").rows() == want })
}

func testFirstGroup(s ledger) {
	s.kubectl("apply", "--namespace", samples, "-f", samplesFolder+"/statefulset.yaml")
	s.kubectl("rollout", "status", "statefulset/ledger", "--namespace", samples, "--timeout", "1m", "--request-timeout", "0")
	s.complete()
	g := s.leads(highest)
	for _, c := range g.Status.Conditions {
		if c.Status != "True" {
			s.t.Errorf("%s is %s (%s: %s)", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	line := s.kubectl("get", "eg", "ledger", "--namespace", samples)
	for _, part := range []string{"ALGORITHM", "COORDINATOR", "TERM", "READY", "AGE", "StatusTable", highest} {
		requirePart(s.t, line, part)
	}
	requirePart(s.t, s.kubectl("get", "events", "--namespace", samples, "--field-selector", "involvedObject.name=ledger"), highest)
}

// testSamples: all that is in the folder, at once.
func testSamples(s ledger) {
	s.kubectl("apply", "--namespace", samples, "-f", samplesFolder)
	for name := range strings.FieldsSeq(s.kubectl("get", "electiongroups", "--namespace", samples, "-o", "jsonpath={.items[*].metadata.name}")) {
		s.eventually(soon, name+" has a coordinator and all its members", func() bool {
			g := s.group(name)
			return g.coordinator() != "" && len(g.Status.Processes) >= 3 && !strings.Contains(g.rows(), "Unknown") &&
				!strings.Contains(g.rows(), "Crashed") && g.Status.MemberList != nil && g.Status.MemberList.State == "Settled"
		})
	}
}

// testSettings also has who comes back take over sooner, in the parts that follow.
func testSettings(s ledger) {
	s.kubectl("patch", "electiongroup", "ledger", "--namespace", samples, "--type", "merge",
		"-p", `{"spec":{"algorithm":"Bully","preemption":{"stableSeconds":4}}}`)
	s.eventually(soon, "all agents go by the new settings", func() bool {
		g := s.group("ledger")
		return g.condition("Agreed") == "True" && g.Status.ObservedGeneration == g.Metadata.Generation
	})
	s.leads(highest)
	s.complete()
	said := s.kubectl("exec", "--namespace", samples, pods[0], "-c", "conclave-agent", "--", "/agent", "status")
	requirePart(s.t, said, "Bully")
}

// testAnew also makes it a group that bears a busy machine: the parts that follow are about what they do to it.
func testAnew(s ledger) {
	before := s.group("ledger")
	s.kubectl("delete", "electiongroup", "ledger", "--namespace", samples)
	s.kubectl("apply", "--namespace", samples, "-f", "testdata/patient.yaml")
	testSettings(s)
	after := s.group("ledger")
	if after.Metadata.UID == before.Metadata.UID || after.Status.Term <= before.Status.Term {
		s.t.Errorf("it was %s in term %d, and is %s in term %d", before.Metadata.UID, before.Status.Term, after.Metadata.UID, after.Status.Term)
	}
}

func testEarly(s ledger) {
	s.kubectl("apply", "--namespace", samples, "-f", "testdata/early.yaml")
	s.eventually(soon, "the table says that there are no agents", func() bool {
		return s.group("early").rows() == "early-2 UnknownNoAgent, early-1 UnknownNoAgent, early-0 UnknownNoAgent"
	})
	requirePart(s.t, s.group("early").Status.Processes[0].Message, "conclave.dev/agent")
	s.kubectl("patch", "statefulset", "early", "--namespace", samples, "--type", "merge", "-p",
		`{"spec":{"template":{"metadata":{"labels":{"conclave.dev/agent":"enabled"},"annotations":{"conclave.dev/groups":"early"}}}}}`)
	s.eventually(soon, "with agents they elect", func() bool {
		return s.group("early").rows() == "early-2 Coordinator, early-1 Normal, early-0 Normal"
	})
	s.kubectl("delete", "--namespace", samples, "-f", "testdata/early.yaml", "--wait=false")
}

func testHostNetwork(s ledger) {
	const namespace = "conclave-host"
	s.kubectl("create", "namespace", namespace)
	s.t.Cleanup(func() { s.kubectl("delete", "namespace", namespace, "--wait=false") })
	s.kubectl("apply", "--namespace", namespace, "-f", "testdata/hostnetwork.yaml")
	s.eventually(soon, "they elect", func() bool {
		rows := s.groupIn(namespace, "host").rows()
		return strings.Count(rows, "Coordinator") == 1 && strings.Count(rows, "Normal") == 2
	})
}

func (l ledger) kill(pod string) {
	l.t.Helper()
	agents := l.processes()
	at := slices.IndexFunc(agents, func(p process) bool { return p.Pod == pod })
	if at < 0 {
		l.t.Fatalf("%s has no agent", pod)
	}
	if err := syscall.Kill(agents[at].PID, syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
}

func testOperatorKilledAgent(s ledger) {
	before := s.leads(highest).Status.Term // On a busy machine another one may have led for a moment.
	s.kill(highest)
	if g := s.leads(pods[3]); g.Status.Term <= before {
		s.t.Errorf("the term was %d and is %d", before, g.Status.Term)
	}
	s.leads(highest)
	s.complete()
}

func testOperatorDeletedPod(s ledger) {
	s.leads(highest)
	s.kubectl("delete", "pod", highest, "--namespace", samples, "--grace-period=0", "--force")
	s.leads(pods[3])
	s.leads(highest)
	s.complete()
}

func testOperatorGracefulDelete(s ledger) {
	s.leads(highest)
	begun := time.Now()
	s.kubectl("delete", "pod", highest, "--namespace", samples, "--wait=false")
	s.leads(pods[3])
	s.leads(highest)
	s.complete()
	if found := brokenPromise(s.since(begun)); found != "" {
		s.t.Error(found)
	}
}

func testCordon(s ledger) {
	node := s.kubectl("get", "pod", highest, "--namespace", samples, "-o", "jsonpath={.spec.nodeName}")
	on := strings.Fields(s.kubectl("get", "pods", "--namespace", samples, "-l", "app=ledger", "--field-selector", "spec.nodeName="+node,
		"-o", "jsonpath={.items[*].metadata.name}"))
	rest := besides(on...)
	s.t.Cleanup(func() { s.kubectl("uncordon", node) })
	s.kubectl("cordon", node)
	s.leads(rest[len(rest)-1])
	s.kubectl("uncordon", node)
	s.leads(highest)
	s.complete()
}

func testElsewhere(s ledger) {
	const elsewhere = "elections"
	s.kubectl("delete", "--namespace", samples, "-f", samplesFolder, "--wait=false")
	s.kubectl("wait", "pod", "--all", "--namespace", samples, "--for=delete", "--timeout", "2m", "--request-timeout", "0")
	s.kubectl("delete", "-f", installer, "--timeout", "2m", "--request-timeout", "0")
	left := s.kubectl("get", "namespaces,mutatingwebhookconfigurations,clusterroles,clusterrolebindings,customresourcedefinitions", "-o", "name")
	for line := range strings.Lines(left) {
		if name := strings.TrimSpace(line); strings.Contains(name, "conclave") && name != "namespace/"+namespace && name != "namespace/"+samples {
			s.t.Errorf("%s is left of the operator", name)
		}
	}
	install(s.cluster, elsewhere)
	testFirstGroup(s)
}
