package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// findContradiction finds two responses that contradict each other, as chaos tests do. It returns a description, or ""
// if there is none.
func findContradiction(leading []response) string {
	var answers []chaos.Answer
	for _, r := range leading {
		answers = append(answers, chaos.Answer{
			From: chaos.Agent{Pod: r.from.Pod, UID: strconv.Itoa(r.from.PID)}, Sent: r.sent, Received: r.received,
			Term: r.Term, Token: r.Token,
		})
	}
	if found := chaos.CheckAnswers(answers); found != nil {
		return found.Detail
	}
	return ""
}

// findLeaseViolation finds an agent that was coordinator before the lease of another one had ended. This is permitted
// only if the other agent was killed. It returns a description, or "" if there is none.
func findLeaseViolation(leading []response) string {
	bySent := slices.SortedFunc(slices.Values(leading), func(a, b response) int { return a.sent.Compare(b.sent) })
	byReceived := slices.SortedFunc(slices.Values(leading),
		func(a, b response) int { return a.received.Compare(b.received) })
	latest := map[process]response{} // the response of each process whose lease ends last
	for _, current := range bySent {
		for len(byReceived) > 0 && byReceived[0].received.Before(current.sent) {
			if first := byReceived[0]; first.leaseEnd().After(latest[first.from].leaseEnd()) {
				latest[first.from] = first
			}
			byReceived = byReceived[1:]
		}
		for from, other := range latest {
			if from != current.from && current.received.Before(other.leaseEnd()) {
				return fmt.Sprintf("%s had a lease for another %dms, but %s", format(other), other.RemainingMillis, format(current))
			}
		}
	}
	return ""
}

// leaseEnd is the time until which an application that received this response may act.
func (a response) leaseEnd() time.Time {
	return a.sent.Add(time.Duration(a.RemainingMillis) * time.Millisecond)
}

func format(a response) string {
	return fmt.Sprintf("%s (process %d) was coordinator with token %d (query %s, response %s later)",
		a.from.Pod, a.from.PID, a.Token, a.sent.Format("15:04:05.000000"), a.received.Sub(a.sent))
}

// describeTenures lists the observed tenures in order.
func describeTenures(leading []response) (lines []string) {
	leading = slices.SortedStableFunc(slices.Values(leading), func(a, b response) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), a.received.Compare(b.received))
	})
	for i := 0; i < len(leading); {
		j := i
		for j+1 < len(leading) && leading[j+1].Token == leading[i].Token {
			j++
		}
		lines = append(lines,
			fmt.Sprintf("%s with token %d from %s to %s (%d responses)", leading[i].from.Pod, leading[i].Token,
				leading[i].received.Format("15:04:05.000"), leading[j].received.Format("15:04:05.000"), j+1-i))
		i = j + 1
	}
	return lines
}

func TestFindLeaseViolation(t *testing.T) {
	start := time.Now()
	respond := func(pid int, remaining, sent, received int64) response {
		moment := func(millis int64) time.Time { return start.Add(time.Duration(millis) * time.Millisecond) }
		return response{
			from: process{PID: pid}, sent: moment(sent), received: moment(received),
			leader: leader{Leading: true, RemainingMillis: remaining},
		}
	}
	for name, c := range map[string]struct {
		leading []response
		want    bool
	}{
		"same coordinator":            {[]response{respond(1, 100, 0, 1), respond(1, 100, 10, 11)}, false},
		"after the lease":             {[]response{respond(1, 100, 0, 1), respond(2, 100, 100, 101)}, false},
		"slow response":               {[]response{respond(1, 100, 0, 1), respond(2, 100, 90, 110)}, false},
		"before the end of the lease": {[]response{respond(1, 100, 0, 1), respond(2, 100, 90, 95)}, true},
		"a later response with a shorter lease": {
			[]response{respond(1, 100, 0, 1), respond(1, 10, 5, 6), respond(2, 100, 90, 95)}, true,
		},
	} {
		if got := findLeaseViolation(c.leading); (got != "") != c.want {
			t.Errorf("%s: got %q, want one: %t", name, got, c.want)
		}
	}
}

// testScaling scales a Deployment up, to 0, and up again. There is at most one coordinator, and the version of the
// member list never decreases.
func testScaling(e env) {
	observer := observe(e.t, e.name, "teller")
	version := e.group("teller").Status.Protocol.MemberList.Version
	before := version
	scaled := func(to int) func() bool {
		e.kubectl("scale", "deployment/teller", "--namespace", samplesNamespace, fmt.Sprintf("--replicas=%d", to))
		return func() bool {
			g := e.group("teller")
			coordinators := strings.Count(g.rows(), " Coordinator")
			expect.AtMostf(e.t, coordinators, 1, "coordinators in the status: %s", g.rows())
			list := g.Status.Protocol.MemberList
			if list == nil || list.Version < version {
				e.t.Fatalf("got member list %+v after version %d", list, version)
			}
			version = list.Version
			if to == 0 {
				return g.coordinator() == "" && strings.Count(g.rows(), " Normal") == 0
			}
			return coordinators == 1 && strings.Count(g.rows(), " Normal") == to-1 &&
				len(g.Status.Processes) == to && list.State == "Settled"
		}
	}
	limit := defaultTimeout + time.Duration(*replicas)*10*time.Second // All pods run on this machine.
	e.waitUntil(limit, fmt.Sprintf("%d pods follow one coordinator", *replicas), scaled(*replicas))
	e.t.Logf("%d versions of the member list, from %d to %d", version-before, before, version)
	e.waitUntil(limit, "there is no coordinator", scaled(0))
	e.kubectl("wait", "pod", "--namespace", samplesNamespace, "-l", "app=teller", "--for=delete", "--timeout",
		limit.String(), "--request-timeout", "0")
	e.waitUntil(limit, "three new pods follow one coordinator", scaled(3))
	e.t.Logf("version %d of the member list", version)
	leading := observer.leadingSince(time.Time{})
	e.t.Logf("tenures:\n%s", strings.Join(describeTenures(leading), "\n"))
	expect.Equal(e.t, findContradiction(leading), "")
	expect.Equal(e.t, findLeaseViolation(leading), "")
}

// testSelection: a label on the pods or on their namespace is enough, and agents join a group that is created while
// they run.
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
	e.waitUntil(defaultTimeout, "the pods without a group run with agents",
		func() bool { return strings.Count(pods(), " Running conclave-agent") == 3 })
	before := pods()
	e.kubectl("apply", "--namespace", namespace, "-f", "testdata/late-group.yaml")
	e.waitUntil(defaultTimeout, "the agents have joined the group", func() bool {
		return e.groupIn(namespace, "late").rows() == "late-2 Coordinator, late-1 Normal, late-0 Normal"
	})
	expect.Equalf(e.t, pods(), before, "pods after the group")
}

// The durations and sizes of the operator's tests. `make soak-operator` sets higher values.
var (
	outage = flag.Duration("outage", 20*time.Second,
		"duration of the outages of the operator and the API server; must be longer than the manager's Lease")
	replicas = flag.Int("replicas", 8, "number of pods to which a Deployment is scaled")
	idle     = flag.Duration("idle", 20*time.Second, "how long idle groups must cause no requests to the API server")
)

// testIdle checks that idle groups cause no requests to the API server, as counted by its metrics. The first attempts
// may fail, because effects of earlier tests continue, or because a group elects on a busy machine.
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

// requestCounts returns the number of requests since the start of the API server. It excludes watches, and the requests
// of the API server to itself: it reads an EndpointSlice every 10 s, and lists the Services every 3 minutes.
func (e env) requestCounts() map[string]int {
	e.t.Helper()
	count := map[string]int{}
	for line := range strings.SplitSeq(e.kubectl("get", "--raw", "/metrics"), "\n") {
		name, number, _ := strings.Cut(line, "} ")
		has := func(label, value string) bool { return strings.Contains(name, label+`="`+value+`"`) }
		if !strings.HasPrefix(name, "apiserver_request_total{") || has("verb", "WATCH") ||
			has("resource", "endpointslices") && has("verb", "GET") ||
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
