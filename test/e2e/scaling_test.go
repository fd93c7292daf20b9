package e2e

import (
	"fmt"
	"strings"
	"time"
)

// testScaling scales a Deployment up, to 0, and up again. There is at most one coordinator, and the version of the member list
// never decreases.
func testScaling(e env) {
	observer := observe(e.t, e.name, "teller")
	version := e.group("teller").Status.Protocol.MemberList.Version
	before := version
	scaled := func(to int) func() bool {
		e.kubectl("scale", "deployment/teller", "--namespace", samplesNamespace, fmt.Sprintf("--replicas=%d", to))
		return func() bool {
			g := e.group("teller")
			coordinators := strings.Count(g.rows(), " Coordinator")
			if coordinators > 1 {
				e.t.Errorf("got %d coordinators in the status, want at most 1: %s", coordinators, g.rows())
			}
			list := g.Status.Protocol.MemberList
			if list == nil || list.Version < version {
				e.t.Fatalf("got member list %+v after version %d", list, version)
			}
			version = list.Version
			if to == 0 {
				return g.coordinator() == "" && strings.Count(g.rows(), " Normal") == 0
			}
			return coordinators == 1 && strings.Count(g.rows(), " Normal") == to-1 && len(g.Status.Processes) == to && list.State == "Settled"
		}
	}
	limit := defaultTimeout + time.Duration(*replicas)*10*time.Second // All pods run on this machine.
	e.waitUntil(limit, fmt.Sprintf("%d pods follow one coordinator", *replicas), scaled(*replicas))
	e.t.Logf("%d versions of the member list, from %d to %d", version-before, before, version)
	e.waitUntil(limit, "there is no coordinator", scaled(0))
	e.kubectl("wait", "pod", "--namespace", samplesNamespace, "-l", "app=teller", "--for=delete", "--timeout", limit.String(), "--request-timeout", "0")
	e.waitUntil(limit, "three new pods follow one coordinator", scaled(3))
	e.t.Logf("version %d of the member list", version)
	leading := observer.leadingSince(time.Time{})
	e.t.Logf("tenures:\n%s", strings.Join(describeTenures(leading), "\n"))
	if found := findContradiction(leading); found != "" {
		e.t.Error(found)
	}
	if found := findLeaseViolation(leading); found != "" {
		e.t.Error(found)
	}
}
