package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The namespaces of the samples and of the operator, the folder of the samples, and the image of their application.
const (
	samplesNamespace  = "conclave-samples"
	samplesFolder     = repositoryRoot + "/config/samples"
	workerImage       = "conclave/worker:e2e"
	operatorNamespace = "conclave-system"
)

// electionGroup is an ElectionGroup as the tests look at it.
type electionGroup struct{ v1.ElectionGroup }

// testOperator installs the operator and the samples like a user, and then injects faults into the coordinator, the
// operator and the API server. The parts depend on each other, so testOperator ends when one fails.
func testOperator(c *cluster) {
	c.load(buildImage(c.t, "./cmd/manager", "conclave/manager:e2e"))
	c.load(buildImage(c.t, "./cmd/manager", "conclave/manager:"+fastRotationTag, "-tags", "conclave_fastrotation"))
	c.load(buildImage(c.t, "./cmd/agent", "conclave/agent:e2e"))
	c.load(buildImage(c.t, "./examples/worker", workerImage))
	c.load(buildImage(c.t, "./examples/lock-service", "conclave/lock-service:example"))
	c.buildPlugin()
	install(c, operatorNamespace, "e2e")
	c.createNamespace(samplesNamespace)
	c.t.Cleanup(func() { logOperatorDiagnostics(c) })
	e := env{c, observe(c.t, c.name, "ledger"), map[string]electionGroup{}}
	for _, part := range []struct {
		name string
		test func(env)
	}{
		{"a StatefulSet of five has a coordinator, a table, labels and a Service", testFirstGroup},
		{"every sample has a coordinator", testSamples},
		{"settings change while the group runs", testSettings},
		{"a group is deleted and recreated", testRecreatedGroup},
		{"one label is enough, and running agents join a new group", testSelection},
		{"the status explains how to add agents to pods without them", testPodsWithoutAgents},
		{"pods with hostNetwork have a coordinator", testHostNetwork},
		{"a program that knows nothing of elections runs in one pod, and then in another", testProgram},
		{"the processes of an example get locks from the coordinator", testWorkload},
		{"clients reach the next coordinator through the agents", testServiceByAgents},
		{"the replacement of a single pod leads while its node is cut off, with witnesses", testWitnesses},
		{"the plugin explains the last election, and finds no problem", testPlugin},
		{"coordinators are spread over zones, and leave one", testPlacement},
		{"status, labels and Service follow after a fault of each kind, and chaos finds no violation", testChaos},
		{"a rollout restart of one or two pods waits for no lease", testSmallGroups},
		{"a rollout restart of five pods keeps the majority, and each tenure ends by a hand-over", testRollout},
		{"operator and agents are upgraded while an application writes, and each tenure ends by a hand-over", testUpgrade},
		{"agents elect under a policy that denies everything by default", testNetworkPolicies},
		{"a Deployment is scaled up, to 0, and up again", testScaling},
		{"agents elect without the operator, and the status catches up", testWithoutOperator},
		{"agents elect without the API server, and the status catches up", testWithoutAPIServer},
		{
			"status, labels and Service follow when the nodes of the coordinator and of the operator's leader are lost",
			testLeaderOfOperatorLost,
		},
		{"a group has its coordinator again after a power failure of all nodes", testPowerFailure},
		{"idle groups cause no requests", testIdle},
		{"in Strict mode, force-deleted pods that run on prevent another coordinator", testStrict},
		{"another member leads while the coordinator's node only sends or only receives", testOneWay},
		{"the operator is removed, and installed into another namespace", testReinstallation},
		{"the CA is replaced as after its key was disclosed", testReplacedCA},
		{"the CA is rotated on request, while operator and agents are killed, without another election", testRotatedCA},
	} {
		passed := c.t.Run(part.name, func(t *testing.T) { part.test(e.withT(t)) })
		if found := e.checkConsistency(); found != "" {
			c.t.Fatal(found)
		}
		if !passed {
			c.t.FailNow()
		}
	}
}

// installer is the manifest of the operator.
var installer = filepath.Join(repositoryRoot, "dist", "install.yaml")

// install installs the operator as described in docs/install.md, with images of this tag.
func install(c *cluster, namespace, tag string) {
	c.t.Helper()
	run(c.t, "make", "-C", repositoryRoot, "build-installer", "IMG=conclave/manager:"+tag,
		"AGENT_IMG=conclave/agent:"+tag, "NAMESPACE="+namespace)
	c.kubectl("apply", "--server-side", "-f", filepath.Join(repositoryRoot, "dist", "install.yaml"))
	c.kubectl("wait", "deployment/conclave-manager", "--namespace", namespace,
		"--for=condition=Available", "--timeout", "5m",
		"--request-timeout", "0")
}

// logOperatorDiagnostics logs objects and logs after a failure.
func logOperatorDiagnostics(c *cluster) {
	if !c.t.Failed() {
		return
	}
	for _, arguments := range [][]string{
		{"get", "electiongroups", "--namespace", samplesNamespace, "-o", "yaml"},
		{"get", "pods", "--namespace", samplesNamespace, "-o", "wide"},
		{"logs", "--namespace", operatorNamespace, "-l", "app.kubernetes.io/name=conclave", "--tail", "200", "--prefix"},
		{"logs", "--namespace", samplesNamespace, "ledger-4", "-c", "conclave-agent", "--tail", "60"},
		{"logs", "--namespace", samplesNamespace, "ledger-0", "-c", "conclave-agent", "--tail", "60"},
	} {
		output, err := c.tryKubectl(arguments...)
		c.t.Logf("kubectl %s (%v):\n%s", strings.Join(arguments, " "), err, output)
	}
}

func (e env) group(name string) electionGroup { return e.groupIn(samplesNamespace, name) }

func (e env) groupIn(namespace, name string) electionGroup {
	e.t.Helper()
	var g electionGroup
	e.get(namespace, name, &g.ElectionGroup)
	// The term of a group never decreases, except that a recreated group has no term at first.
	key := namespace + "/" + name
	before := e.groups[key]
	if term := g.Status.Term; term < before.Status.Term && (term > 0 || g.UID == before.UID) {
		e.t.Errorf("status of %s: got term %d after %d", name, term, before.Status.Term)
	}
	if g.Status.Term >= before.Status.Term {
		e.groups[key] = g
	}
	return g
}

// rows returns the process table of the status in one line.
func (g electionGroup) rows() string {
	var rows []string
	for _, p := range g.Status.Processes {
		rows = append(rows, p.Pod+" "+string(p.Status)+string(p.Reason))
	}
	return strings.Join(rows, ", ")
}

func (g electionGroup) condition(conditionType string) metav1.ConditionStatus {
	if found := meta.FindStatusCondition(g.Status.Conditions, conditionType); found != nil {
		return found.Status
	}
	return ""
}

func (g electionGroup) coordinator() string {
	if g.Status.Coordinator == nil {
		return ""
	}
	return g.Status.Coordinator.Pod
}

// awaitCoordinator waits until the status, the labels and the Service show the coordinator.
func (e env) awaitCoordinator(pod string) electionGroup {
	e.t.Helper()
	e.waitUntil(defaultTimeout, "the status shows coordinator "+pod,
		func() bool { return e.group("ledger").coordinator() == pod })
	e.waitUntil(defaultTimeout, "only "+pod+" has the coordinator's label", func() bool {
		var labelled corev1.PodList
		e.list(samplesNamespace, map[string]string{"role.conclave.dev/ledger": "coordinator"}, &labelled)
		return len(labelled.Items) == 1 && labelled.Items[0].Name == pod
	})
	e.waitUntil(defaultTimeout, "the Service points at "+pod, func() bool {
		var endpoints discoveryv1.EndpointSliceList
		e.list(samplesNamespace, map[string]string{discoveryv1.LabelServiceName: "ledger-coordinator"}, &endpoints)
		var to []string
		for _, slice := range endpoints.Items {
			for _, endpoint := range slice.Endpoints {
				to = append(to, endpoint.Addresses...)
			}
		}
		var coordinator corev1.Pod
		e.get(samplesNamespace, pod, &coordinator)
		return len(to) == 1 && to[0] == coordinator.Status.PodIP
	})
	return e.group("ledger")
}

// awaitAllMembers waits until the highest pod is coordinator and all others follow.
func (e env) awaitAllMembers() {
	e.t.Helper()
	const want = "ledger-4 Coordinator, ledger-3 Normal, ledger-2 Normal, ledger-1 Normal, ledger-0 Normal"
	e.waitUntil(defaultTimeout, "all members follow "+highest, func() bool { return e.group("ledger").rows() == want })
}

func testFirstGroup(e env) {
	e.kubectl("apply", "--namespace", samplesNamespace, "-f", e.samples()+"/statefulset.yaml")
	e.kubectl("rollout", "status", "statefulset/ledger", "--namespace", samplesNamespace, "--timeout",
		"5m", "--request-timeout", "0")
	e.awaitAllMembers()
	e.awaitCoordinator(highest)
	// On a busy machine, an agent may be suspected for a moment.
	e.waitUntil(defaultTimeout, "the conditions show no problem", func() bool {
		good := true
		for _, c := range e.group("ledger").Status.Conditions {
			want := "True"
			if c.Type == "Progressing" || c.Type == "Degraded" {
				want = "False"
			}
			if string(c.Status) != want {
				e.t.Logf("got condition %s=%s (%s: %s), want %s", c.Type, c.Status, c.Reason, c.Message, want)
				good = false
			}
		}
		return good
	})
	line := e.kubectl("get", "eg", "ledger", "--namespace", samplesNamespace)
	for _, part := range []string{"COORDINATOR", "READY", "REASON", "UP", "AGE", highest} {
		requireContains(e.t, line, part)
	}
	e.waitUntil(defaultTimeout, "an event names "+highest, func() bool { // The operator writes events asynchronously.
		return strings.Contains(
			e.kubectl("get", "events", "--namespace", samplesNamespace, "--field-selector", "involvedObject.name=ledger"),
			highest)
	})
}

// samples returns a folder with the samples, with images that the nodes have. The group that later parts break has an
// application that does nothing, so that these parts test the agents alone: TestReleaseInstallation runs it with its
// own.
func (e env) samples() string {
	e.t.Helper()
	files, err := filepath.Glob(samplesFolder + "/*.yaml")
	if err != nil || len(files) == 0 {
		e.t.Fatalf("got samples %q, error %v", files, err)
	}
	folder := e.t.TempDir()
	for _, file := range files {
		image := workerImage
		if filepath.Base(file) == "statefulset.yaml" {
			image = "conclave/pause:e2e"
		}
		writeFile(e.t, filepath.Join(folder, filepath.Base(file)),
			strings.ReplaceAll(readFile(e.t, file), "image.invalid/worker:unset", image))
	}
	return folder
}

// testSamples applies all samples at once.
func testSamples(e env) {
	folder := e.samples()
	e.kubectl("apply", "--namespace", samplesNamespace, "-f", folder)
	for name := range strings.FieldsSeq(e.kubectl("get", "electiongroups", "--namespace", samplesNamespace, "-o",
		"jsonpath={.items[*].metadata.name}")) {
		e.waitUntil(defaultTimeout, name+" has a coordinator and all its members", func() bool {
			g := e.group(name)
			return g.coordinator() != "" && len(g.Status.Processes) >= 2 && !strings.Contains(g.rows(), "Unknown") &&
				!strings.Contains(g.rows(), "Crashed") && g.Status.Protocol.MemberList != nil &&
				g.Status.Protocol.MemberList.State == "Settled"
		})
	}
	for _, file := range []string{"zones", "witness", "two-nodes"} { // Later parts don't need them.
		e.kubectl("delete", "--namespace", samplesNamespace, "-f", folder+"/"+file+".yaml", "--wait=false")
	}
}

// testSettings changes the settings of a running group. A lower stableMillis also makes the following parts faster.
func testSettings(e env) {
	e.kubectl("patch", "electiongroup", "ledger", "--namespace", samplesNamespace, "--type", "merge",
		"-p", `{"spec":{"algorithm":"Bully","preemption":{"stableMillis":4000}}}`)
	e.waitUntil(defaultTimeout, "all agents use the new settings", func() bool {
		g := e.group("ledger")
		return g.condition("Ready") == "True" && g.Status.ObservedGeneration == g.Generation
	})
	e.awaitCoordinator(highest)
	e.awaitAllMembers()
	output := e.kubectl("exec", "--namespace", samplesNamespace, pods[0], "-c", "conclave-agent", "--", "/agent", "status")
	requireContains(e.t, output, "Bully")
}

// testRecreatedGroup recreates the group with longer timeouts, so that in the following parts no agent is suspected
// because the machine is busy.
func testRecreatedGroup(e env) {
	before := e.group("ledger")
	e.kubectl("delete", "electiongroup", "ledger", "--namespace", samplesNamespace)
	e.kubectl("apply", "--namespace", samplesNamespace, "-f", "testdata/long-timeouts.yaml")
	testSettings(e)
	after := e.group("ledger")
	if after.UID == before.UID || after.Status.Term <= before.Status.Term {
		e.t.Errorf("got UID and term %[3]s %[4]d after %[1]s %[2]d, want another UID and a higher term", before.UID,
			before.Status.Term, after.UID, after.Status.Term)
	}
}

func testPodsWithoutAgents(e env) {
	e.kubectl("apply", "--namespace", samplesNamespace, "-f", "testdata/agentless.yaml")
	e.waitUntil(defaultTimeout, "the status shows that the pods have no agents", func() bool {
		return e.group("agentless").
			rows() == "agentless-2 UnknownPodMissing, agentless-1 UnknownPodMissing, agentless-0 UnknownPodMissing"
	})
	requireContains(e.t, e.group("agentless").Status.Processes[0].Message, "conclave.dev/agent")
	e.kubectl("patch", "statefulset", "agentless", "--namespace", samplesNamespace, "--type", "merge", "-p",
		`{"spec":{"template":{"metadata":{"labels":{"conclave.dev/agent":"enabled"}}}}}`)
	e.waitUntil(defaultTimeout, "the pods with agents have a coordinator", func() bool {
		return e.group("agentless").rows() == "agentless-2 Coordinator, agentless-1 Normal, agentless-0 Normal"
	})
	e.kubectl("delete", "--namespace", samplesNamespace, "-f", "testdata/agentless.yaml", "--wait=false")
}

func testHostNetwork(e env) {
	const namespace = "conclave-host"
	e.kubectl("create", "namespace", namespace)
	e.t.Cleanup(func() { e.kubectl("delete", "namespace", namespace, "--wait=false") })
	e.kubectl("apply", "--namespace", namespace, "-f", "testdata/hostnetwork.yaml")
	others := len(e.nodes()) - 1 // There is a pod on each node.
	e.waitUntil(defaultTimeout, "the pods have a coordinator", func() bool {
		rows := e.groupIn(namespace, "host").rows()
		return strings.Count(rows, "Coordinator") == 1 && strings.Count(rows, "Normal") == others
	})
}

func (e env) killAgent(pod string) {
	e.t.Helper()
	agents := e.processes()
	at := slices.IndexFunc(agents, func(p process) bool { return p.Pod == pod })
	if at < 0 {
		e.t.Fatalf("no agent in %s", pod)
	}
	must.Succeed(e.t, syscall.Kill(agents[at].PID, syscall.SIGKILL))
}
