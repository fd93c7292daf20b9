package e2e

import (
	"flag"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

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
