package e2e

import "time"

// The images of the next version, to which testUpgrade upgrades.
const nextTag = "e2e-next"

// upgradePatch gives the group longer timeouts, so that on a busy machine no agent is suspected. Then each tenure must end by
// a hand-over.
const upgradePatch = `{"spec":{"safety":{"leaseMillis":3000},"timing":{"patienceMillis":3000},"preemption":{"stableSeconds":2}}}`

// testUpgrade upgrades the operator, and then the agents of an application that writes all the time. Meanwhile, pods of other
// groups keep the former agent.
func testUpgrade(e env) {
	const namespace, name = "conclave-upgrade", "lock-service"
	e.load(buildImage(e.t, "./cmd/manager", "conclave/manager:"+nextTag))
	e.load(buildImage(e.t, "./cmd/agent", "conclave/agent:"+nextTag))
	e.kubectl("create", "namespace", namespace)
	e.t.Cleanup(func() { e.kubectl("delete", "namespace", namespace, "--wait=false") })
	e.kubectl("apply", "--namespace", namespace, "-f", workloadManifest)
	e.kubectl("patch", "electiongroup", name, "--namespace", namespace, "--type", "merge", "-p", upgradePatch)
	table := func() string { return e.groupIn(namespace, name).rows() }
	const all = "lock-service-2 Coordinator, lock-service-1 Normal, lock-service-0 Normal"
	e.waitUntil(defaultTimeout, "all members follow lock-service-2", func() bool { return table() == all })
	e.awaitWrites(namespace, 20)
	start := time.Now()

	install(e.cluster, operatorNamespace, nextTag)
	e.kubectl("rollout", "status", "deployment/conclave-manager", "--namespace", operatorNamespace, "--timeout", "5m", "--request-timeout", "0")
	plugin := e.buildPlugin()
	requireContains(e.t, string(e.runPluginIn(namespace, plugin, "upgrade", name, "--dry-run")),
		"would replace lock-service-2 (conclave/agent:e2e), after it has handed over lock-service")
	output := string(e.runPluginIn(namespace, plugin, "upgrade", name))
	e.t.Logf("%s", output)
	requireContains(e.t, output, "lock-service-2 handed over lock-service: ")

	e.waitUntil(defaultTimeout, "all members follow lock-service-2 again", func() bool { return table() == all })
	g := e.groupIn(namespace, name)
	for _, row := range g.Status.Processes {
		if row.AgentVersion != nextTag {
			e.t.Errorf("%s: got agent %q, want %q", row.Pod, row.AgentVersion, nextTag)
		}
	}
	for _, tenure := range g.Status.History {
		if tenure.Until != nil && tenure.Until.After(start) && tenure.EndReason != "HandOver" && tenure.EndReason != "StepDown" {
			e.t.Errorf("the tenure of %s ended by %q, want a hand-over", tenure.Pod, tenure.EndReason)
		}
	}
	e.awaitWrites(namespace, 20)
}
