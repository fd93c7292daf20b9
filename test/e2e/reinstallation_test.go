package e2e

import "strings"

// otherNamespace is where the operator is installed again.
const otherNamespace = "elections"

func testReinstallation(e env) {
	e.kubectl("delete", "--namespace", samplesNamespace, "-f", e.samples(), "--ignore-not-found", "--wait=false")
	e.kubectl("wait", "pod", "--all", "--namespace", samplesNamespace, "--for=delete", "--timeout", "5m", "--request-timeout", "0")
	e.kubectl("delete", "-f", installer, "--timeout", "5m", "--request-timeout", "0")
	remaining := e.kubectl("get", "namespaces,mutatingwebhookconfigurations,clusterroles,clusterrolebindings,customresourcedefinitions", "-o", "name")
	for line := range strings.Lines(remaining) {
		if name := strings.TrimSpace(line); strings.Contains(name, "conclave") && name != "namespace/"+namespace && name != "namespace/"+samplesNamespace {
			e.t.Errorf("got %s after the operator was removed", name)
		}
	}
	install(e.cluster, otherNamespace, "e2e")
	testFirstGroup(e)
}

// testReplacedCA does what docs/operate.md advises if the key of the CA may have been disclosed. It also sets the image for
// testRotatedCA, because this is when agents get new certificates.
func testReplacedCA(e env) {
	manager := func(verb string, arguments ...string) string {
		return e.kubectl(append([]string{verb, "--namespace", otherNamespace}, arguments...)...)
	}
	key := func() string { return manager("get", "secret", "conclave-ca", "-o", "jsonpath={.data}") }
	before := key()
	manager("scale", "deployment/conclave-manager", "--replicas", "0")
	manager("wait", "pod", "-l", "app.kubernetes.io/name=conclave", "--for=delete", "--timeout", "5m", "--request-timeout", "0")
	manager("delete", "secret", "conclave-ca")
	manager("create", "secret", "generic", "conclave-ca")
	manager("set", "image", "deployment/conclave-manager", "manager=conclave/manager:"+fastRotationTag)
	manager("scale", "deployment/conclave-manager", "--replicas", "2")
	manager("rollout", "status", "deployment/conclave-manager", "--timeout", "5m", "--request-timeout", "0")
	if after := key(); after == "" || after == before {
		e.t.Errorf("got a secret of %d bytes that equals the former one or is empty, want a new CA", len(after))
	}
	e.kubectl("rollout", "restart", "statefulset/ledger", "--namespace", samplesNamespace)
	e.kubectl("rollout", "status", "statefulset/ledger", "--namespace", samplesNamespace, "--timeout", "5m", "--request-timeout", "0")
	e.awaitAllMembers()
	e.awaitCoordinator(highest)
}
