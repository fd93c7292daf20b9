package e2e

import (
	"flag"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
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

// The durations and sizes of the operator's tests. `make soak-operator` sets higher values.
var (
	outage   = flag.Duration("outage", 20*time.Second, "duration of the outages of the operator and the API server; must be longer than the manager's Lease")
	replicas = flag.Int("replicas", 8, "number of pods to which a Deployment is scaled")
	idle     = flag.Duration("idle", 20*time.Second, "how long idle groups must cause no requests to the API server")
)

// testIdle checks that idle groups cause no requests to the API server, as counted by its metrics. The first attempts may fail,
// because effects of earlier tests continue, or because a group elects on a busy machine.
func testIdle(e env) {
	before := e.requestCounts()
	e.waitUntil(max(defaultTimeout, 3**idle), "no requests for "+idle.String(), func() bool {
		time.Sleep(*idle) // The period in which requests are counted.
		after := e.requestCounts()
		for what, count := range after {
			if count != before[what] {
				e.t.Logf("%d requests: %s", count-before[what], what)
			}
		}
		isIdle := maps.Equal(before, after)
		before = after
		return isIdle
	})
}

// requestCounts returns the number of requests since the start of the API server. It excludes watches, and the requests of the
// API server to itself: it reads an EndpointSlice every 10 s, and lists the Services every 3 minutes.
func (e env) requestCounts() map[string]int {
	e.t.Helper()
	count := map[string]int{}
	for line := range strings.SplitSeq(e.kubectl("get", "--raw", "/metrics"), "\n") {
		name, number, _ := strings.Cut(line, "} ")
		has := func(label, value string) bool { return strings.Contains(name, label+`="`+value+`"`) }
		if !strings.HasPrefix(name, "apiserver_request_total{") || has("verb", "WATCH") || has("resource", "endpointslices") && has("verb", "GET") ||
			has("resource", "services") && has("verb", "LIST") {
			continue
		}
		requests, err := strconv.Atoi(number)
		must.Succeedf(e.t, err, "%s", line)
		for _, resource := range []string{
			"electiongroups", "endpointslices", "services", "pods", "events", "tokenreviews", "mutatingwebhookconfigurations",
		} {
			if has("resource", resource) {
				count[name] = requests
			}
		}
	}
	return count
}
