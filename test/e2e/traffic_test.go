package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/safety"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// receipt is the answer of a coordinator: its token, and a number that grows during its tenure.
type receipt struct {
	Pod           string
	Token, Number uint64
}

// traffic is a client that sends requests through the Service of a coordinator, one after the other.
type traffic struct {
	*cluster
	stop func()

	mu     sync.Mutex
	latest receipt
	// err is the first receipt that contradicts an earlier one.
	err     error
	answers int
	// failed has the number of requests by their error.
	failed map[string]int
	// longest is the longest time without an answer.
	longest time.Duration
}

// sendRequests sends requests from a node until the test ends or stop is called. They have no body, or this one, with
// their number in place of NUMBER.
func (c *cluster) sendRequests(namespace, service, path, body string) *traffic {
	c.t.Helper()
	address := ""
	c.waitUntil(defaultTimeout, "the Service "+service+" has an address", func() bool {
		address = c.kubectl("get", "service", service, "--namespace", namespace, "--ignore-not-found", "-o",
			"jsonpath={.spec.clusterIP}")
		return address != ""
	})
	node, err := os.Open(c.networks()[0])
	must.Succeed(c.t, err)
	t := &traffic{cluster: c, failed: map[string]int{}}
	// The node routes each connection anew.
	sender := &http.Client{
		Transport: &http.Transport{DialContext: dialer(node), DisableKeepAlives: true}, Timeout: time.Second,
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		defer node.Close()
		answered := time.Now()
		for number := 1; ctx.Err() == nil; number++ {
			got, err := send(ctx, sender, "http://"+address+path, strings.ReplaceAll(body, "NUMBER", strconv.Itoa(number)))
			if ctx.Err() == nil {
				t.record(got, err, &answered)
			}
			select {
			case <-time.After(pollInterval):
			case <-ctx.Done():
			}
		}
	})
	t.stop = func() { cancel(); running.Wait() }
	c.t.Cleanup(t.stop)
	return t
}

func send(ctx context.Context, sender *http.Client, url, body string) (got receipt, err error) {
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return got, err
	}
	response, err := sender.Do(request)
	if err != nil {
		return got, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return got, errors.New(response.Status)
	}
	return got, json.NewDecoder(response.Body).Decode(&got)
}

func (t *traffic) record(got receipt, err error, answered *time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		for inner := err; inner != nil; inner = errors.Unwrap(inner) {
			err = inner // It has no address.
		}
		t.failed[err.Error()]++
		return
	}
	before := t.latest
	if t.err == nil &&
		(got.Token < before.Token || got.Token == before.Token && (got.Number <= before.Number || got.Pod != before.Pod)) {
		t.err = fmt.Errorf("got receipt %+v after %+v, want a higher token, or a higher number of the same coordinator",
			got, before)
	}
	now := time.Now()
	t.longest = max(t.longest, now.Sub(*answered))
	*answered, t.latest = now, got
	t.answers++
}

// awaitReceipt waits for an answer with a higher token than that of an earlier one.
func (t *traffic) awaitReceipt(what string, before receipt) (latest receipt) {
	t.t.Helper()
	t.waitUntil(defaultTimeout, what, func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		latest = t.latest
		return latest.Token > before.Token
	})
	return latest
}

// report logs what has happened since the last report, and fails the test if a receipt was wrong.
func (t *traffic) report(what string) {
	t.t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.t.Logf("%s: %d requests answered, at most %s without an answer, failed: %v", what, t.answers,
		t.longest.Round(time.Millisecond), t.failed)
	if t.err != nil || t.answers == 0 {
		t.t.Fatalf("%s: got %d answers, error %v", what, t.answers, t.err)
	}
	t.answers, t.longest = 0, 0
	clear(t.failed)
}

const workloadManifest = repositoryRoot + "/examples/lock-service/manifest.yaml"

var holds = regexp.MustCompile(
	`^holds: no gap, no duplicate and no stale write in (\d+) writes to 2 resources, by 3 processes`)

// testWorkload runs an example as users do. All its processes must get locks from the coordinator.
func testWorkload(e env) {
	const namespace = "conclave-workload"
	e.kubectl("create", "namespace", namespace)
	e.t.Cleanup(func() { e.kubectl("delete", "namespace", namespace, "--wait=false") })
	e.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	e.kubectl("apply", "--namespace", namespace, "-f", workloadManifest)
	e.waitUntil(defaultTimeout, "lock-service-2 is coordinator", func() bool {
		return e.groupIn(namespace, "lock-service").coordinator() == "lock-service-2"
	})
	e.awaitWrites(namespace, 20)
}

// testServiceByAgents deletes the pod of a coordinator whose clients come through the agents.
func testServiceByAgents(e env) {
	const namespace, service = "conclave-agents", "lock-service-coordinator"
	e.startLockService(namespace)
	e.kubectl("patch", "electiongroup", lockService, "--namespace", namespace, "--type", "merge", "-p",
		`{"spec":{"service":{"via":"Agents"}}}`)
	e.waitUntil(defaultTimeout, "the Service points at all members", func() bool {
		return len(strings.Fields(e.kubectl("get", "endpointslice", service+"-conclave", "--namespace", namespace, "-o",
			"jsonpath={.endpoints[*].addresses[0]}"))) == 3
	})
	client := e.sendRequests(namespace, service, "/acquire", `{"lock":"of/client/NUMBER","holder":"client"}`)
	before := client.awaitReceipt("the client has a lock", receipt{})
	e.kubectl("delete", "pod", lockService+"-2", "--namespace", namespace)
	client.awaitReceipt("the client has a lock of the next coordinator", before)
	client.report("through the agents, in a hand-over")
}

// awaitWrites waits until the processes have made further writes with locks from the coordinator. All writes must have
// been right.
func (e env) awaitWrites(namespace string, further int) {
	e.t.Helper()
	before := e.writes(namespace)
	// Each check starts a process in a pod.
	if !testwait.Within(defaultTimeout, time.Second, func() bool { return e.writes(namespace) >= before+further }) {
		e.t.Fatalf("%d writes, and within %s not %d further ones with locks", before, defaultTimeout, further)
	}
}

// writes returns the number of writes in the ledger, or 0 while it starts or not all processes have written.
func (e env) writes(namespace string) int {
	e.t.Helper()
	output, err := e.tryKubectl("exec", "--namespace", namespace, "lock-service-ledger-0", "--", "/lock-service",
		"check", "http://127.0.0.1:8090")
	if strings.Contains(output, "violated") {
		e.t.Fatal(safety.Violated, output)
	}
	match := holds.FindStringSubmatch(output)
	if err != nil || match == nil {
		return 0
	}
	count, _ := strconv.Atoi(match[1]) // It consists of digits.
	return count
}
