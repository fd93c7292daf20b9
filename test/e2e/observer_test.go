package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/program"
)

// The intervals at which each agent is queried, and at which new agents are looked for. A response of a coordinator
// says how long it leads, so two coordinators are found unless one of them leads for less than an interval. More
// queries would take the processor time that the cluster needs.
const (
	pollInterval     = 25 * time.Millisecond
	discoverInterval = 250 * time.Millisecond
)

type process = program.Process

// response is the response of an agent to a query for the coordinator.
type response struct {
	from           process
	sent, received time.Time
	leader
}

type leader struct {
	Coordinator     string
	Leading         bool
	Term, Token     uint64
	RemainingMillis int64
}

// observer queries the agents of all pods of a group periodically. It dials from inside the pods, over loopback like an
// application, so that network faults don't affect the queries. The pods must therefore be processes of this machine.
type observer struct {
	cluster, group, query string

	mu      sync.Mutex
	latest  map[process]response
	leading []response // all responses of coordinators
}

// observe starts an observer, which runs until the test ends. The names of the pods must start with the name of the
// group. As an application that acts for a lease may do, it asks for a promise, for whose end a hand-over waits.
func observe(t *testing.T, cluster, group string) *observer {
	t.Helper()
	return observeBy(t, cluster, group, "?promiseMillis=60000")
}

func observeBy(t *testing.T, cluster, group, query string) *observer {
	t.Helper()
	o := &observer{cluster: cluster, group: group, query: query, latest: map[process]response{}}
	ctx, cancel := context.WithCancel(context.Background())
	var pollers sync.WaitGroup
	pollers.Go(func() { o.discoverAgents(ctx, &pollers) })
	t.Cleanup(func() { cancel(); pollers.Wait() })
	return o
}

// discoverAgents starts a poller for each new agent.
func (o *observer) discoverAgents(ctx context.Context, pollers *sync.WaitGroup) {
	known := map[process]bool{}
	ticker := time.NewTicker(discoverInterval)
	defer ticker.Stop()
	for {
		for _, found := range o.processes() {
			if !known[found] {
				known[found] = true
				pollers.Go(func() { o.poll(ctx, found) })
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// processes returns the running agents of the group.
func (o *observer) processes() []process {
	return slices.DeleteFunc(program.Agents(o.cluster),
		func(p process) bool { return !strings.HasPrefix(p.Pod, o.group+"-") })
}

// poll queries an agent until it ends.
func (o *observer) poll(ctx context.Context, agent process) {
	inside, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", agent.PID))
	if err != nil {
		return // The agent has ended.
	}
	defer inside.Close()
	transport := &http.Transport{DialContext: dialer(inside)}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Second}
	for ctx.Err() == nil {
		r, err := o.ask(ctx, client)
		r.from = agent
		ended := unix.Kill(agent.PID, 0) != nil // Then another agent in the same network namespace may have responded.
		o.mu.Lock()
		delete(o.latest, agent)
		if err == nil && !ended {
			o.latest[agent] = r
		}
		if r.Leading && !ended {
			o.leading = append(o.leading, r)
		}
		o.mu.Unlock()
		if ended {
			return
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
		}
	}
}

func (o *observer) ask(ctx context.Context, client *http.Client) (r response, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://127.0.0.1:7374/v1/groups/"+o.group+"/leader"+o.query, http.NoBody)
	if err != nil {
		return r, err
	}
	r.sent = time.Now()
	response, err := client.Do(request)
	if err != nil {
		return r, err
	}
	defer response.Body.Close()
	var l leader
	if err := json.NewDecoder(response.Body).Decode(&l); err != nil {
		return r, err
	}
	r.received, r.leader = time.Now(), l
	return r, nil
}

// dialer returns a function that dials from inside a network namespace.
func dialer(inside *os.File) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return inNamespace(inside, func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, address) })
	}
}

// inNamespace creates a socket inside a network namespace. A socket belongs to the namespace of the thread that creates
// it.
func inNamespace[S any](inside *os.File, create func() (S, error)) (socket S, err error) {
	runtime.LockOSThread()
	outside, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return socket, err
	}
	defer outside.Close()
	if err := unix.Setns(int(inside.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return socket, err
	}
	socket, err = create()
	// If the thread cannot return to its namespace, it remains locked, and ends with this goroutine.
	if unix.Setns(int(outside.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return socket, err
}

// latestResponses returns the latest response of each agent that responds, by pod.
func (o *observer) latestResponses() map[string][]response {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string][]response{}
	for from, r := range o.latest {
		all[from.Pod] = append(all[from.Pod], r)
	}
	return all
}

// agreeOn reports whether there is exactly one agent in each of the pods, and all of them report this coordinator. If
// the coordinator is one of the pods, it must confirm that it is leading.
func (o *observer) agreeOn(coordinator string, pods ...string) bool {
	all := o.latestResponses()
	for _, pod := range pods {
		if r := all[pod]; len(r) != 1 || r[0].Coordinator != coordinator || r[0].Leading != (pod == coordinator) {
			return false
		}
	}
	return true
}

// leadingSince returns the responses of coordinators since a time.
func (o *observer) leadingSince(start time.Time) []response {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.leading), func(a response) bool { return a.sent.Before(start) })
}

// checkConsistency returns a contradiction between all responses so far, or "".
func (o *observer) checkConsistency() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return findContradiction(o.leading)
}
