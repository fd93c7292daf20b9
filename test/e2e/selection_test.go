package e2e

import "strings"

// testSelection: a label on the pods or on their namespace is enough, and agents join a group that is created while they run.
func testSelection(e env) {
	const namespace = "conclave-late"
	e.kubectl("create", "namespace", namespace)
	e.t.Cleanup(func() { e.kubectl("delete", "namespace", namespace, "--wait=false") })
	e.kubectl("label", "namespace", namespace, "conclave.dev/injection=enabled")
	e.kubectl("apply", "--namespace", namespace, "-f", "testdata/late.yaml")
	e.waitUntil(defaultTimeout, "the pod without a label is the coordinator", func() bool {
		return e.groupIn(namespace, "plain").rows() == "plain-0 Coordinator"
	})
	pods := func() string {
		return e.kubectl("get", "pods", "--namespace", namespace, "-l", "app=late", "--sort-by", "metadata.name",
			"-o", `jsonpath={range .items[*]}{.metadata.uid} {.status.phase} {.spec.initContainers[*].name}{"\n"}{end}`)
	}
	e.waitUntil(defaultTimeout, "the pods without a group run with agents", func() bool { return strings.Count(pods(), " Running conclave-agent") == 3 })
	before := pods()
	e.kubectl("apply", "--namespace", namespace, "-f", "testdata/late-group.yaml")
	e.waitUntil(defaultTimeout, "the agents have joined the group", func() bool {
		return e.groupIn(namespace, "late").rows() == "late-2 Coordinator, late-1 Normal, late-0 Normal"
	})
	if after := pods(); after != before {
		e.t.Errorf("got pods\n%s\nwant those from before the group\n%s", after, before)
	}
}
