package e2e

import (
	"flag"
	"maps"
	"strconv"
	"strings"
	"time"
)

// What befalls the operator takes as long as this. `make soak-operator` has it take longer.
var (
	away  = flag.Duration("away", 20*time.Second, "how long the operator is away, and then the API server; longer than the Lease takes to be lost")
	crowd = flag.Int("crowd", 8, "to how many pods a Deployment is scaled")
	idle  = flag.Duration("idle", 20*time.Second, "how long it is counted what idle groups have the API server asked")
)

// testIdle counts what the API server is asked, by its own metrics, for what groups have to do with. What went before may not
// have come to its end, and on a busy machine a group may elect in between: so there are several goes.
func testIdle(s ledger) {
	before := s.asked()
	s.eventually(max(2*time.Minute, 3**idle), "nothing has been asked for "+idle.String(), func() bool {
		time.Sleep(*idle) // This is what is counted over.
		after := s.asked()
		for what, count := range after {
			if count != before[what] {
				s.t.Logf("asked %d times: %s", count-before[what], what)
			}
		}
		idled := maps.Equal(before, after)
		before = after
		return idled
	})
}

// asked is how often the API server was asked since it was started, but for watches, and for what it asks itself: for an
// EndpointSlice every 10 s, and for the ports of all Services every 3 minutes.
func (l ledger) asked() map[string]int {
	l.t.Helper()
	count := map[string]int{}
	for line := range strings.SplitSeq(l.kubectl("get", "--raw", "/metrics"), "\n") {
		name, number, _ := strings.Cut(line, "} ")
		has := func(label, value string) bool { return strings.Contains(name, label+`="`+value+`"`) }
		if !strings.HasPrefix(name, "apiserver_request_total{") || has("verb", "WATCH") || has("resource", "endpointslices") && has("verb", "GET") ||
			has("resource", "services") && has("verb", "LIST") {
			continue
		}
		requests, err := strconv.Atoi(number)
		if err != nil {
			l.t.Fatalf("%s: %v", line, err)
		}
		for _, resource := range []string{
			"electiongroups", "configmaps", "endpointslices", "services", "pods", "events", "tokenreviews", "mutatingwebhookconfigurations",
		} {
			if has("resource", resource) {
				count[name] = requests
			}
		}
	}
	return count
}
