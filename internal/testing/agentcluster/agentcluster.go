// Package agentcluster runs a group of real agents on this machine: one process for
// each, on an address of its own in 127.0.0.0/8, with everything that can befall
// a process. Tests and the benchmark use it.
//
// Every agent binds its connections to its own address, also those that it
// dials. So packets between two agents can be told apart, and lost: Partition
// and Cut do that in a network namespace which Main makes for the tests.
//
// All is cleaned up by Close; and by the kernel, if the program that runs the
// troupe is killed before.
package agentcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Options is what a troupe starts from.
type Options struct {
	// Binary is the agent's program, see Build.
	Binary string
	// Folder is where the files of the agents go.
	Folder string
	// Agents is how many there are. They are called a, b, c and so on, and the
	// last one has the highest priority.
	Agents int
	// TLS: with certificates of a CA of their own; otherwise in plain TCP.
	TLS bool
	// Group is what the config files say about the group; name and members are
	// filled in.
	Group Group
}

// Cluster is a number of agents that are members of the same group.
type Cluster struct {
	plan Options
	// Agents in the order of their priorities, lowest first.
	agents []*Agent
	client *courier
	// ctx lasts until Close.
	ctx context.Context
	end context.CancelFunc
}

// New makes the files of a troupe, and starts nobody. The troupe lasts until
// Close, be ctx done or not.
func New(ctx context.Context, plan Options) (*Cluster, error) {
	if plan.Agents < 1 || plan.Agents > maxAgents {
		return nil, fmt.Errorf("a troupe of %d agents: there can be 1 to %d", plan.Agents, maxAgents)
	}
	if plan.Group.Name == "" {
		plan.Group.Name = "ledger"
	}
	hosts, err := freeHosts(ctx, plan.Agents)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	t := &Cluster{plan: plan, client: newCourier(), ctx: ctx, end: end}
	for i, host := range hosts {
		t.agents = append(t.agents, newAgent(ctx, plan.Binary, plan.Folder, nameOf(i), host))
		plan.Group.Members = append(plan.Group.Members, Member{
			Name: nameOf(i), Priority: uint32(i+1) * 10, Address: net.JoinHostPort(host, peerPort),
		})
	}
	if err := t.writeFiles(plan); err != nil {
		end()
		return nil, err
	}
	return t, nil
}

func (t *Cluster) writeFiles(plan Options) error {
	tls := TLS{Insecure: true}
	if plan.TLS {
		if err := writeCertificates(plan.Folder, plan.Group.Name, t.Names()); err != nil {
			return err
		}
	}
	for _, a := range t.agents {
		if plan.TLS {
			tls = TLS{
				CertFile: filepath.Join(plan.Folder, a.Name+".pem"), KeyFile: filepath.Join(plan.Folder, a.Name+"-key.pem"),
				CAFile: filepath.Join(plan.Folder, authority),
			}
		}
		a.file = File{
			Self: a.Name, API: a.API, Listen: net.JoinHostPort(a.Host, peerPort),
			State: filepath.Join(plan.Folder, a.Name+".state"), TLS: tls, Groups: []Group{plan.Group.clone()},
		}
		if err := a.writeFile(); err != nil {
			return err
		}
	}
	return nil
}

// Names are all agents, by priority, lowest first.
func (t *Cluster) Names() []string {
	names := make([]string, len(t.agents))
	for i, a := range t.agents {
		names[i] = a.Name
	}
	return names
}

// Running are the agents whose processes have been started and haven't ended,
// be they stopped or not.
func (t *Cluster) Running() []string {
	return slices.DeleteFunc(t.Names(), func(name string) bool { return !t.Agent(name).running() })
}

// Agent finds an agent by its name.
func (t *Cluster) Agent(name string) *Agent {
	for _, a := range t.agents {
		if a.Name == name {
			return a
		}
	}
	panic(fmt.Sprintf("there is no agent %q in the troupe: %s", name, strings.Join(t.Names(), ", ")))
}

// Start starts the agents with these names, all if there are none.
func (t *Cluster) Start(names ...string) error {
	if len(names) == 0 {
		names = t.Names()
	}
	for _, name := range names {
		if err := t.Agent(name).Start(); err != nil {
			return err
		}
	}
	return nil
}

// Restart kills the agent, if it still runs, and starts it.
func (t *Cluster) Restart(name string) error {
	if _, err := t.Agent(name).Kill(); err != nil {
		return err
	}
	return t.Agent(name).Start()
}

// Close ends all processes, and says which of them had ended by themselves.
func (t *Cluster) Close() error {
	err := t.Heal()
	for _, a := range t.agents {
		_, killed := a.Kill()
		err = errors.Join(err, killed)
	}
	for _, a := range t.agents {
		err = errors.Join(err, a.AwaitEnd(), a.mishap())
	}
	t.end()
	t.client.close()
	return err
}

// Logs are the last lines that each agent wrote.
func (t *Cluster) Logs(lines int) string {
	var logs strings.Builder
	for _, a := range t.agents {
		fmt.Fprintf(&logs, "---- the last lines of %s\n%s\n", a.Name, a.lastLines(lines))
	}
	return logs.String()
}

const (
	maxAgents = 250
	peerPort  = "7401"
	apiPort   = "7501"
)

// nameOf returns a, b, ..., z, ba, bb and so on.
func nameOf(index int) string {
	const letters = 'z' - 'a' + 1
	letter := string(rune('a' + index%letters))
	if index < letters {
		return letter
	}
	return nameOf(index/letters) + letter
}

// settled counts the neighbourhoods that this program has tried.
var settled atomic.Int64

// freeHosts finds a neighbourhood 127.x.y.0/24 that nobody has settled in, so
// that troupes of one network namespace don't get in each other's way, whichever
// program runs them.
func freeHosts(ctx context.Context, count int) ([]string, error) {
	const side = 250
	for range side * side {
		at := (os.Getpid()*side + int(settled.Add(1))) % (side * side)
		hosts := make([]string, count)
		for i := range hosts {
			hosts[i] = fmt.Sprintf("127.%d.%d.%d", 1+at/side, 1+at%side, 1+i)
		}
		if free(ctx, hosts[0]) {
			return hosts, nil
		}
	}
	return nil, errors.New("all addresses of this machine that a troupe could have are taken")
}

func free(ctx context.Context, host string) bool {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, peerPort))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// patience is how long the troupe waits for what a process or the kernel does at
// once.
const patience = 30 * time.Second
