package e2e

import (
	"path/filepath"
	"strings"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// testWitnesses cuts off the node of the only pod of a group. Its replacement leads while the former pod still runs
// there: the votes of two witnesses are a majority without it.
func testWitnesses(e env) {
	const namespace = "conclave-single"
	e.createNamespace(namespace)
	file := filepath.Join(e.t.TempDir(), "witness.yaml")
	manifest := readFile(e.t, filepath.Join(repositoryRoot, "config", "witness", "witness.yaml"))
	writeFile(e.t, file, strings.ReplaceAll(manifest, "image.invalid/agent:unset", "conclave/agent:e2e"))
	e.t.Cleanup(func() {
		e.kubectl("delete", "-f", file, "--cascade=foreground", "--timeout", "2m", "--request-timeout", "0")
	})
	e.kubectl("apply", "-f", file)
	e.kubectl("apply", "--namespace", namespace, "-f", "testdata/single.yaml")
	await := func(what string, isWanted func(electionGroup) bool) (g electionGroup) {
		e.waitUntil(defaultTimeout, what, func() bool {
			g = e.groupIn(namespace, "single")
			return g.coordinator() != "" && isWanted(g)
		})
		return g
	}
	isHealthy := func(g electionGroup) bool {
		list := g.Status.Protocol.MemberList
		return g.condition("Degraded") == "False" && list.State == v1.ListSettled && len(list.Members) == 3
	}
	first := await("the pod leads with two witnesses", isHealthy).coordinator()
	node := e.nodesOf(namespace, first)[first]
	e.t.Cleanup(func() { e.kubectl("uncordon", node); e.control("heal", node) })
	e.kubectl("cordon", node)
	e.control("partition", node)
	e.kubectl("delete", "pod", first, "--namespace", namespace, "--wait=false")
	await("the replacement leads", func(g electionGroup) bool { return g.coordinator() != first })
	e.control("heal", node)
	await("the group has only the replacement and witnesses", func(g electionGroup) bool {
		return isHealthy(g) && !strings.Contains(g.rows(), first)
	})
}
