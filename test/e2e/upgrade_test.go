package e2e

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// nextRelease is the version of images with the same sources as those of version "e2e".
const nextRelease = "e2e-next"

// upgradePatch gives the group longer timeouts, so that on a busy machine no agent is suspected. Then each tenure must
// end by a hand-over.
const upgradePatch = `{"spec":{"safety":{"leaseMillis":3000},"timing":{"suspicionTimeoutMillis":3000},"preemption":{"stableMillis":2000}}}`

// servicePatch gives the lock service a Service, through which a client acquires locks meanwhile.
const servicePatch = `{"spec":{"service":{"name":"lock-service-coordinator","ports":[{"port":80,"targetPort":8080}]}}}`

// lockService is the group of the application that runs during an upgrade.
const lockService = "lock-service"

// testUpgrade upgrades the operator, and then the agents of an application that writes all the time. Meanwhile, pods of
// other groups keep the former agent.
func testUpgrade(e env) {
	const namespace = "conclave-upgrade"
	e.load(buildImage(e.t, "./cmd/manager", "conclave/manager:"+nextRelease))
	e.load(buildImage(e.t, "./cmd/agent", "conclave/agent:"+nextRelease))
	e.startLockService(namespace)
	e.upgrade(namespace)
}

// startLockService starts the application in a new namespace, and waits until it has written.
func (e env) startLockService(namespace string) {
	e.t.Helper()
	e.kubectl("create", "namespace", namespace)
	e.t.Cleanup(func() { e.kubectl("delete", "namespace", namespace, "--wait=false") })
	e.kubectl("apply", "--namespace", namespace, "-f", workloadManifest)
	for _, patch := range []string{upgradePatch, servicePatch} {
		e.kubectl("patch", "electiongroup", lockService, "--namespace", namespace, "--type", "merge", "-p", patch)
	}
	e.awaitLockService(namespace)
}

// awaitLockService waits until all members follow the highest one, and the application writes.
func (e env) awaitLockService(namespace string) {
	e.t.Helper()
	const all = "lock-service-2 Coordinator, lock-service-1 Normal, lock-service-0 Normal"
	e.waitUntil(defaultTimeout, "all members follow lock-service-2",
		func() bool { return e.groupIn(namespace, lockService).rows() == all })
	e.awaitWrites(namespace, 20)
}

// upgrade installs the next release of the operator, as docs/operate.md describes it, and then replaces the agents of
// the application. Each tenure must end by a hand-over.
func (e env) upgrade(namespace string) {
	e.t.Helper()
	start := time.Now()
	client := e.sendRequests(namespace, "lock-service-coordinator", "/acquire",
		`{"lock":"of/client/NUMBER","holder":"client"}`)
	defer client.stop()
	before := client.awaitReceipt("the client has a lock", receipt{})
	install(e.cluster, operatorNamespace, nextRelease)
	e.kubectl("rollout", "status", "deployment/conclave-manager", "--namespace", operatorNamespace, "--timeout",
		"5m", "--request-timeout", "0")
	e.waitUntil(defaultTimeout, "the former replicas have ended, which inject the former agent", func() bool {
		var replicas corev1.PodList
		e.list(operatorNamespace, map[string]string{"app.kubernetes.io/name": "conclave"}, &replicas)
		return len(replicas.Items) == 2
	})
	e.restart(namespace, lockService, 3)
	e.awaitLockService(namespace)
	client.awaitReceipt("the client has a lock of a later coordinator", before)
	client.report("operator and agents were upgraded")
	g := e.groupIn(namespace, lockService)
	e.t.Logf("the tenures: %+v", g.Status.History)
	for _, row := range g.Status.Processes {
		expect.Equalf(e.t, row.AgentVersion, nextRelease, "%s: agent", row.Pod)
	}
	e.requirePlannedEnds(g, start)
}

// otherNamespace is where the operator is installed again.
const otherNamespace = "elections"

func testReinstallation(e env) {
	e.kubectl("delete", "--namespace", samplesNamespace, "-f", e.samples(), "--ignore-not-found", "--wait=false")
	e.kubectl("wait", "pod", "--all", "--namespace", samplesNamespace, "--for=delete", "--timeout",
		"5m", "--request-timeout", "0")
	e.kubectl("delete", "-f", installer, "--timeout", "5m", "--request-timeout", "0")
	remaining := e.kubectl("get",
		"namespaces,mutatingwebhookconfigurations,clusterroles,clusterrolebindings,customresourcedefinitions", "-o", "name")
	for line := range strings.Lines(remaining) {
		if name := strings.TrimSpace(line); strings.Contains(name, "conclave") && name != "namespace/"+namespace &&
			name != "namespace/"+samplesNamespace {
			e.t.Errorf("got %s after the operator was removed", name)
		}
	}
	install(e.cluster, otherNamespace, "e2e")
	testFirstGroup(e)
}

// testReplacedCA does what docs/operate.md advises if the key of the CA may have been disclosed. It also sets the image
// for testRotatedCA, because this is when agents get new certificates.
func testReplacedCA(e env) {
	manager := func(verb string, arguments ...string) string {
		return e.kubectl(append([]string{verb, "--namespace", otherNamespace}, arguments...)...)
	}
	key := func() string { return manager("get", "secret", "conclave-ca", "-o", "jsonpath={.data}") }
	before := key()
	manager("scale", "deployment/conclave-manager", "--replicas", "0")
	manager("wait", "pod", "-l", "app.kubernetes.io/name=conclave", "--for=delete", "--timeout",
		"5m", "--request-timeout", "0")
	manager("delete", "secret", "conclave-ca")
	manager("create", "secret", "generic", "conclave-ca")
	manager("set", "image", "deployment/conclave-manager", "manager=conclave/manager:"+fastRotationTag)
	manager("scale", "deployment/conclave-manager", "--replicas", "2")
	manager("rollout", "status", "deployment/conclave-manager", "--timeout", "5m", "--request-timeout", "0")
	if after := key(); after == "" || after == before {
		e.t.Errorf("got a secret of %d bytes that equals the former one or is empty, want a new CA", len(after))
	}
	e.kubectl("rollout", "restart", "statefulset/ledger", "--namespace", samplesNamespace)
	e.kubectl("rollout", "status", "statefulset/ledger", "--namespace", samplesNamespace, "--timeout",
		"5m", "--request-timeout", "0")
	e.awaitAllMembers()
	e.awaitCoordinator(highest)
}
