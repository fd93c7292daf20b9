package e2e

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var previousSource = flag.String("previous-source", "",
	"the folder with the sources of an earlier release, from which to upgrade")

// release is a version of operator and agents.
type release struct {
	source string
	// tag is that of the images, and the version that the agents report.
	tag string
}

var (
	thisRelease = release{repositoryRoot, "e2e"}
	// nextRelease has the same sources as this one.
	nextRelease     = release{repositoryRoot, "e2e-next"}
	previousRelease = release{"", "e2e-previous"} // Its source is previousSource.
)

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
	e.loadRelease(nextRelease)
	e.startLockService(namespace)
	e.upgrade(namespace, thisRelease, nextRelease)
}

// TestReleaseUpgrade upgrades from an earlier release to this one, and rolls back.
func TestReleaseUpgrade(t *testing.T) {
	if *previousSource == "" {
		t.Skip("requires the sources of an earlier release: run make test-upgrade PREVIOUS=TAG")
	}
	previous := previousRelease
	previous.source = *previousSource
	c := newCluster(t)
	e := env{c, observe(t, c.name, lockService), map[string]electionGroup{}}
	e.loadRelease(previous)
	e.loadRelease(thisRelease)
	c.load(buildImage(t, "./examples/lock-service", "conclave/lock-service:example"))
	installFrom(c, previous.source, operatorNamespace, previous.tag)
	t.Cleanup(func() { logOperatorDiagnostics(c) })
	const namespace = "conclave-upgrade"
	e.startLockService(namespace)
	start := time.Now()
	e.upgrade(namespace, previous, thisRelease)
	e.upgrade(namespace, thisRelease, previous)
	if found := findLeaseViolation(e.leadingSince(start)); found != "" {
		t.Error(found)
	}
	if found := e.checkConsistency(); found != "" {
		t.Error(found)
	}
}

// loadRelease loads the images of a release.
func (e env) loadRelease(r release) {
	e.t.Helper()
	source, err := filepath.Abs(r.source)
	must.Succeed(e.t, err)
	e.load(buildImage(e.t, "./cmd/manager", "conclave/manager:"+r.tag, "-source", source))
	e.load(buildImage(e.t, "./cmd/agent", "conclave/agent:"+r.tag, "-source", source))
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

// upgrade installs another release of the operator, as docs/operate.md describes it, and then replaces the agents of
// the application. Each tenure must end by a hand-over.
func (e env) upgrade(namespace string, from, to release) {
	e.t.Helper()
	start := time.Now()
	client := e.sendRequests(namespace, "lock-service-coordinator", "/acquire",
		`{"lock":"of/client/NUMBER","holder":"client"}`)
	defer client.stop()
	before := client.awaitReceipt("the client has a lock", receipt{})
	installFrom(e.cluster, to.source, operatorNamespace, to.tag)
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
	client.report("operator and agents were upgraded from " + from.tag + " to " + to.tag)
	g := e.groupIn(namespace, lockService)
	e.t.Logf("the tenures: %+v", g.Status.History)
	for _, row := range g.Status.Processes {
		expect.Equalf(e.t, row.AgentVersion, to.tag, "%s: agent", row.Pod)
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
