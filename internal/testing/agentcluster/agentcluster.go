// Package agentcluster runs a group of real agents on this machine, for tests and benchmarks. Each agent is a process
// with its own address in 127.0.0.0/8, and can be killed, paused, restarted and partitioned.
//
// Every agent binds its connections to its own address, including those that it dials. Packets between two agents can
// therefore be told apart. Partition and Cut drop them, in a network namespace that Main creates for the tests.
//
// Close cleans up. If the program that runs the cluster is killed, the kernel does.
package agentcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// Options configure a Cluster.
type Options struct {
	// Binary is the path of the agent's binary, see Build.
	Binary string
	// Folder holds the agents' files.
	Folder string
	// Agents is the number of agents. They are named a, b, c and so on, and the last one has the highest priority.
	Agents int
	// TLS gives each agent a certificate from a CA of the cluster. Without it, the agents use plain TCP.
	TLS bool
	// Untraced: the agents of a test don't record their elections. Otherwise, these are checked when the test ends.
	Untraced bool
	traced   bool
	// Group is the group in the configuration files. New fills in name and members.
	Group Group
	// Further are more groups with the same members. They need names.
	Further []Group
}

// Cluster is a set of agents that are members of the same group.
type Cluster struct {
	options Options
	// agents are in the order of their priorities, lowest first.
	agents []*Agent
	client *apiClient
	ca     *identity.CA
	// ctx lasts until Close.
	ctx context.Context
	end context.CancelFunc
}

// New writes the files of a cluster and starts no agent. The cluster lasts until Close, even if ctx is done before.
func New(ctx context.Context, options Options) (*Cluster, error) {
	if options.Agents < 1 || options.Agents > maxAgents {
		return nil, fmt.Errorf("agents must be 1 to %d, got %d", maxAgents, options.Agents)
	}
	if options.Group.Name == "" {
		options.Group.Name = "ledger"
	}
	subnet, peerPort, apiPort, err := newSubnet(ctx)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	t := &Cluster{options: options, client: newAPIClient(), ctx: ctx, end: end}
	if options.traced {
		if err := os.MkdirAll(options.traces(), 0o700); err != nil {
			end()
			return nil, err
		}
	}
	for i := range options.Agents {
		host := subnet + strconv.Itoa(1+i)
		t.agents = append(t.agents, newAgent(ctx, &options, nameOf(i), host, apiPort))
		options.Group.Members = append(options.Group.Members, Member{
			Name: nameOf(i), Priority: uint32(i+1) * 10, Address: net.JoinHostPort(host, peerPort),
		})
	}
	options.Further = slices.Clone(options.Further)
	for i := range options.Further {
		options.Further[i].Members = options.Group.Members
	}
	if err := t.writeFiles(options); err != nil {
		end()
		return nil, err
	}
	return t, nil
}

func (t *Cluster) writeFiles(options Options) error {
	tls := TLS{Insecure: true}
	if options.TLS {
		if err := t.writeCertificates(); err != nil {
			return err
		}
	}
	for i, a := range t.agents {
		if options.TLS {
			tls = TLS{
				CertFile: filepath.Join(options.Folder, a.Name+".pem"), KeyFile: filepath.Join(options.Folder, a.Name+"-key.pem"),
				CAFile: filepath.Join(options.Folder, caFile),
			}
		}
		a.file.Config = config.Config{
			Self: a.Name, API: a.API, Listen: options.Group.Members[i].Address,
			State: filepath.Join(options.Folder, a.Name+".state"), TLS: tls,
		}
		for _, group := range append([]Group{options.Group}, options.Further...) {
			a.file.Groups = append(a.file.Groups, clone(group))
		}
		if err := a.writeFile(); err != nil {
			return err
		}
	}
	return nil
}

// In returns the same cluster, such that its queries are about another one of the groups.
func (t *Cluster) In(group string) *Cluster {
	same := *t
	same.options.Group.Name = group
	return &same
}

// Groups returns the names of all groups.
func (t *Cluster) Groups() []string {
	groups := []string{t.options.Group.Name}
	for _, further := range t.options.Further {
		groups = append(groups, further.Name)
	}
	return groups
}

// Names returns the names of all agents, by priority, lowest first.
func (t *Cluster) Names() []string {
	names := make([]string, len(t.agents))
	for i, a := range t.agents {
		names[i] = a.Name
	}
	return names
}

// Running returns the agents whose processes have started and haven't exited. A paused process is running.
func (t *Cluster) Running() []string {
	return slices.DeleteFunc(t.Names(), func(name string) bool { return !t.Agent(name).running() })
}

// Agent returns the agent with this name.
func (t *Cluster) Agent(name string) *Agent {
	for _, a := range t.agents {
		if a.Name == name {
			return a
		}
	}
	panic(fmt.Sprintf("there is no agent %q in the cluster, only %s", name, strings.Join(t.Names(), ", ")))
}

// Start starts the agents with these names, or all agents if there are no names.
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

// Restart kills the agent if it is running, and starts it.
func (t *Cluster) Restart(name string) error {
	if _, err := t.Agent(name).Kill(); err != nil {
		return err
	}
	return t.Agent(name).Start()
}

// Kill kills all agents, and returns when they have exited.
func (t *Cluster) Kill() error {
	var err error
	for _, a := range t.agents {
		_, killed := a.Kill()
		err = errors.Join(err, killed)
	}
	for _, a := range t.agents {
		err = errors.Join(err, a.AwaitEnd())
	}
	return err
}

// Close kills all processes. It returns an error for each one that exited unexpectedly before.
func (t *Cluster) Close() error {
	err := errors.Join(t.Heal(), t.Kill())
	for _, a := range t.agents {
		err = errors.Join(err, a.unexpectedExit())
	}
	t.end()
	t.client.close()
	return err
}

// Logs returns the last lines of each agent's log, for the first agents of a large cluster.
func (t *Cluster) Logs(lines int) string {
	const atMost = 20
	var logs strings.Builder
	for i, a := range t.agents {
		if i == atMost {
			fmt.Fprintf(&logs, "---- and %d more agents\n", len(t.agents)-atMost)
			break
		}
		fmt.Fprintf(&logs, "---- last lines of %s\n%s\n", a.Name, a.lastLines(lines))
	}
	return logs.String()
}

// maxAgents is less than the number of addresses in a subnet.
const maxAgents = 100

// nameOf returns a, b, ..., z, ba, bb and so on.
func nameOf(index int) string {
	const letters = 'z' - 'a' + 1
	letter := string(rune('a' + index%letters))
	if index < letters {
		return letter
	}
	return nameOf(index/letters) + letter
}

// subnetsUsed counts the subnets that this program has used.
var subnetsUsed atomic.Int64

// newSubnet returns the start of the addresses of a subnet 127.x.y.0/24, so that clusters in the same network namespace
// don't collide, even if different programs run them. It also returns ports for peers and for APIs that nobody uses
// there: a program may listen on all addresses, and one in another PID namespace may have the same subnet.
func newSubnet(ctx context.Context) (subnet, peerPort, apiPort string, err error) {
	const subnets = 250
	at := (os.Getpid()*subnets + int(subnetsUsed.Add(1))) % (subnets * subnets)
	subnet = fmt.Sprintf("127.%d.%d.", 1+at/subnets, 1+at%subnets)
	const firstPeer, firstAPI = 7401, 7501 // The kernel uses higher ports for outgoing connections.
	for i := range firstAPI - firstPeer {
		peerPort, apiPort = strconv.Itoa(firstPeer+i), strconv.Itoa(firstAPI+i)
		if free(ctx, subnet+"1", peerPort) && free(ctx, subnet+"1", apiPort) {
			return subnet, peerPort, apiPort, nil
		}
	}
	return "", "", "", fmt.Errorf("there are no free ports from %d on", firstPeer)
}

func free(ctx context.Context, host, port string) bool {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// waitMax bounds waits for events that normally happen at once, such as the exit of a killed process.
const waitMax = 2 * time.Minute
