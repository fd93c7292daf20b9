package agents

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
	"github.com/conclave-dev/conclave/internal/testing/traffic"
)

// roleVariable makes the test program another one: an application, or a flood of clients.
const roleVariable = "CONCLAVE_TEST_ROLE"

func runRole(words []string) {
	switch words[0] {
	case "flood":
		flood(words[1:])
	case "application": // It serves only while it leads.
		_ = client.Run(context.Background(), "ledger", func(ctx context.Context, _ uint64) error {
			return traffic.Serve(ctx, words[1])
		}, client.At("http://"+words[2]))
	}
}

// flood opens connections at addresses without end. Of 40, some send nothing, one reads nothing, and the others leave.
func flood(addresses []string) {
	var attempts atomic.Int64
	zero, _ := os.Open("/dev/zero")
	for range 8 {
		go func() {
			for {
				n := attempts.Add(1)
				c, err := net.DialTimeout("tcp", addresses[int(n)%len(addresses)], time.Second)
				if err != nil {
					continue
				}
				_ = c.(*net.TCPConn).SetLinger(0) //nolint:errcheck,forcetypeassert // It leaves no socket behind.
				if n%40 > 4 {
					_ = c.Close()
				} else if n%40 == 0 {
					go func() { _, _ = io.Copy(c, zero) }()
				}
			}
		}()
	}
	select {}
}

// servedGroup is a group whose agents carry connections to applications, which are processes.
type servedGroup struct {
	*testGroup

	applications         map[string]*exec.Cmd
	service, application map[string]string // addresses, by agent
}

func newServedGroup(t testing.TB) *servedGroup {
	t.Helper()
	settings := agentcluster.Group{Preemption: agentcluster.Preemption{Policy: "Never", StableMillis: new(int32(0))}}
	settings.Application.Session = "Required"
	g := &servedGroup{
		testGroup: newGroup(t, agentcluster.Options{Agents: 3, TLS: true, Group: settings}), service: map[string]string{},
		applications: map[string]*exec.Cmd{}, application: map[string]string{},
	}
	listen, failed := testnet.FreePort()
	port, err := testnet.FreePort()
	must.Succeed(t, errors.Join(failed, err))
	for _, name := range g.Names() {
		host := g.Agent(name).Host
		g.service[name] = net.JoinHostPort(host, strconv.Itoa(listen))
		g.application[name] = net.JoinHostPort(host, strconv.Itoa(port))
		g.check(g.WriteConfig(name, func(f *agentcluster.File) {
			f.Groups[0].Service = &agentcluster.Service{
				Ports: []agentcluster.ServicePort{{Listen: g.service[name], Port: uint16(port)}},
			}
		}))
	}
	g.startConnected()
	for _, name := range g.Names() {
		g.startApplication(name)
	}
	g.awaitCoordinator()
	return g
}

func (g *servedGroup) startApplication(name string) {
	g.applications[name] = g.startRole("application", g.application[name], g.Agent(name).API)
}

// startRole starts a program that has less priority than agents, as if it ran on another machine.
func (g *servedGroup) startRole(words ...string) *exec.Cmd {
	g.t.Helper()
	command := exec.CommandContext(g.t.Context(), "nice", "-n", "15", os.Args[0])
	command.Env = append(os.Environ(), roleVariable+"="+strings.Join(words, " "))
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	g.check(command.Start())
	return command
}

// clients sends requests by way of agents in turn while a fault happens.
func (g *servedGroup) clients(agents []string, fault func()) traffic.Seen {
	const around = 100 * time.Millisecond
	var addresses []string
	for _, name := range agents {
		addresses = append(addresses, g.service[name])
	}
	ctx, end := context.WithCancel(g.t.Context())
	seen := make(chan traffic.Seen, 1)
	go func() { seen <- traffic.Send(ctx, false, addresses...) }()
	time.Sleep(around)
	fault()
	time.Sleep(around)
	end()
	return <-seen
}

// handOver makes a coordinator step down. Who has stepped down before isn't ready to take over at once.
func (g *servedGroup) handOver(coordinator string) error {
	return agentcluster.Await(g.ctx, func(ctx context.Context) error {
		_, err := g.StepDown(ctx, coordinator, "")
		return err
	})
}

// kill makes the caller kill the coordinator with its application, and replaces both then.
func (g *servedGroup) kill(meanwhile func(others []string, kill func())) {
	g.t.Helper()
	coordinator := g.awaitCoordinator()
	others, application := g.others(coordinator), g.applications[coordinator]
	time.Sleep(time.Second) // From the end of a new connection, peers don't conclude that the process has ended.
	meanwhile(others, func() {
		g.check(application.Process.Kill())
		_, err := g.Agent(coordinator).Kill()
		g.check(err)
		g.awaitCoordinator(others...)
	})
	_ = application.Wait() // It was killed.
	g.start(coordinator)
	g.startApplication(coordinator)
	g.awaitConnected()
	g.await(func(ctx context.Context) error {
		status, err := g.Status(ctx, coordinator)
		if err == nil && len(status.Sessions) == 0 {
			err = errors.New("the application hasn't opened a session")
		}
		return err
	})
}

func TestClientsReachTheNextCoordinator(t *testing.T) {
	// An application that closes its listener resets what connects at this moment.
	const rounds, longestMax, failedMax = 3, 2 * time.Second, 1
	g, waits := newServedGroup(t), control.Wait{}
	for range rounds {
		g.kill(func(others []string, kill func()) {
			seen := g.clients(others, kill)
			t.Logf("killed: %+v", seen)
			expect.AtMostf(t, seen.Gap, float64(longestMax.Milliseconds()), "longest time without an answer, in ms")
			waited := g.waited(others)
			waits.Add(&waited)
		})
		seen := g.clients(g.Names(), func() { g.check(g.handOver(g.awaitCoordinator())) })
		t.Logf("hand-over: %+v", seen)
		expect.AtMostf(t, seen.Failed, failedMax, "requests that failed in a hand-over: %v", seen.Errors)
	}
	expect.AtLeastf(t, waits.Connections, 1, "connections that waited, as agents say")
	expect.AtMostf(t, waits.LongestMicros, longestMax.Microseconds(), "their longest wait")
}

// While the application of the coordinator stops, all agents hold new connections back, although it still listens.
func TestNewConnectionsWaitForTheSuccessor(t *testing.T) {
	g := newServedGroup(t)
	name := g.others(g.awaitCoordinator())[0]
	g.check(g.applications[name].Process.Kill())
	stops, stopped, answers := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		_ = client.Run(g.ctx, "ledger", func(ctx context.Context, _ uint64) error {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", g.application[name])
			if err == nil {
				<-ctx.Done()
				close(stops)
				<-stopped
				err = l.Close()
			}
			return err
		}, client.At("http://"+g.Agent(name).API))
	}()
	g.coordinate(name)
	go func() { _ = g.handOver(name) }()
	testwait.Receive(t, "a request to stop", stops)
	for _, agent := range g.Names() {
		go func() { answers <- traffic.Ask(new(net.Conn), g.service[agent]) }()
		testwait.Until(t, agent+" holds a connection back", func() bool { return g.status(agent).Connections.Waiting == 1 })
	}
	close(stopped)
	for range g.Names() {
		must.Succeed(t, testwait.Receive(t, "an answer of the successor", answers))
	}
}

// waited returns how connections waited for the coordinator, at some agents.
func (g *servedGroup) waited(agents []string) (sum control.Wait) {
	g.t.Helper()
	leader, err := g.Leader(g.t.Context(), agents[0])
	g.check(err)
	for _, name := range agents {
		status, failed := g.Status(g.t.Context(), name)
		journal, err := g.Journal(g.t.Context(), name)
		g.check(errors.Join(failed, err))
		must.Equalf(g.t, status.Connections == nil, false, "no connections in the status of %s", name)
		for i := range journal.Waits {
			if journal.Waits[i].Term == leader.Term {
				sum.Add(&journal.Waits[i])
			}
		}
	}
	return sum
}

func TestFloodDoesntDelayElections(t *testing.T) {
	need.Complete(t)
	const ratio, slack, rounds = 10, 20 * time.Millisecond, 3
	g := newServedGroup(t)
	failover := func() time.Duration { // the least, because the machine may be busy with other things
		least := time.Hour
		for range rounds {
			g.kill(func(_ []string, kill func()) {
				began := time.Now()
				kill()
				least = min(least, time.Since(began))
			})
		}
		return least
	}
	usual := failover()
	words := []string{"flood"}
	for _, name := range g.Names() {
		words = append(words, g.service[name])
	}
	command := g.startRole(words...)
	defer func() { _ = command.Process.Kill() }()
	flooded := failover()
	t.Logf("usually %s, in a flood %s", usual, flooded)
	expect.AtMostf(t, flooded, ratio*usual+slack, "time until the next coordinator in a flood")
	expect.Succeedf(t, traffic.Ask(new(net.Conn), g.service[g.awaitCoordinator()]), "a request in the flood")
}
