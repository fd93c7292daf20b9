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

// askEvery is how often an agent that leads is asked.
const askEvery = 5 * time.Millisecond

type process = program.Process

// answer is what an agent said when it was asked who leads.
type answer struct {
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

// observer asks all agents of a group's pods all the time, inside these: over loopback, as an application does, and through
// no network that could be cut. So it needs a cluster whose pods are processes of this machine.
type observer struct {
	cluster, group string
	every          time.Duration // is how often those are asked that don't lead; new ones are looked for a tenth as often

	mu     sync.Mutex
	latest map[process]answer
	led    []answer // all answers of agents that led
}

// observe begins to ask, until the test ends. The names of the group's pods begin with the group's.
func observe(t *testing.T, cluster, group string, every time.Duration) *observer {
	t.Helper()
	o := &observer{cluster: cluster, group: group, every: every, latest: map[process]answer{}}
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	asking.Go(func() { o.look(ctx, &asking) })
	t.Cleanup(func() { cancel(); asking.Wait() })
	return o
}

// look begins to ask each agent that comes.
func (o *observer) look(ctx context.Context, asking *sync.WaitGroup) {
	known := map[process]bool{}
	ticker := time.NewTicker(10 * o.every)
	defer ticker.Stop()
	for {
		for _, found := range o.processes() {
			if !known[found] {
				known[found] = true
				asking.Go(func() { o.ask(ctx, found) })
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// processes are the agents of the group that run in the cluster.
func (o *observer) processes() []process {
	return slices.DeleteFunc(program.Agents(o.cluster), func(p process) bool { return !strings.HasPrefix(p.Pod, o.group+"-") })
}

// ask asks one agent for as long as it lives.
func (o *observer) ask(ctx context.Context, agent process) {
	inside, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", agent.PID))
	if err != nil {
		return // It has ended.
	}
	defer inside.Close()
	transport := &http.Transport{DialContext: dialer(inside)}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Second}
	for ctx.Err() == nil {
		said, err := o.question(ctx, client)
		said.from = agent
		ended := unix.Kill(agent.PID, 0) != nil // Then it was another agent in the same place that has answered.
		o.mu.Lock()
		delete(o.latest, agent)
		if err == nil && !ended {
			o.latest[agent] = said
		}
		if said.Leading && !ended {
			o.led = append(o.led, said)
		}
		o.mu.Unlock()
		if ended {
			return
		}
		pause := o.every
		if said.Leading {
			pause = askEvery
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (o *observer) question(ctx context.Context, client *http.Client) (said answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:7374/v1/groups/"+o.group+"/leader", http.NoBody)
	if err != nil {
		return said, err
	}
	said.sent = time.Now()
	response, err := client.Do(request)
	if err != nil {
		return said, err
	}
	defer response.Body.Close()
	var l leader
	if err := json.NewDecoder(response.Body).Decode(&l); err != nil {
		return said, err
	}
	said.received, said.leader = time.Now(), l
	return said, nil
}

// dialer connects from inside a network namespace: a socket belongs to the one in which its thread was when it was made.
func dialer(inside *os.File) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		runtime.LockOSThread()
		outside, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			return nil, err
		}
		defer outside.Close()
		if err := unix.Setns(int(inside.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			return nil, err
		}
		connection, err := new(net.Dialer).DialContext(ctx, network, address)
		// A thread that can't come back stays locked, and ends with this goroutine.
		if unix.Setns(int(outside.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		return connection, err
	}
}

// now is the latest answer of each agent that answers.
func (o *observer) now() map[string][]answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string][]answer{}
	for from, said := range o.latest {
		all[from.Pod] = append(all[from.Pod], said)
	}
	return all
}

// agree reports whether there is one agent in each of the pods, and all of them say that one leads; if that is among them,
// it must say so, too.
func (o *observer) agree(on string, pods ...string) bool {
	all := o.now()
	for _, pod := range pods {
		if said := all[pod]; len(said) != 1 || said[0].Coordinator != on || said[0].Leading != (pod == on) {
			return false
		}
	}
	return true
}

// since are the answers of agents that led, from a moment on.
func (o *observer) since(begun time.Time) []answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.led), func(a answer) bool { return a.sent.Before(begun) })
}

// contradiction is the first that there is in all that was said until now.
func (o *observer) contradiction() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return contradiction(o.led)
}
