// Package kindnodes injects faults into the nodes of kind clusters on this computer, which are containers. It runs the
// programs of nodes, such as nft and tc, in their networks and in those of their pods.
//
// A node can't have a wall clock or a disk of its own: containers share those of the machine.
package kindnodes

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Runtimes are the container runtimes that kind supports.
var Runtimes = []string{"docker", "podman", "nerdctl"}

// Nodes are the nodes of the clusters of a container runtime.
type Nodes struct {
	Runtime string
	// Quiet is how long Signal waits before it sends, and afterwards: what a runtime starts for a command uses CPU time,
	// which slows down a failover.
	Quiet time.Duration

	// addresses are those of nodes that Kill has killed.
	addresses map[string]netip.Addr
}

// Pause stops all processes of nodes. To others, the nodes are silent.
func (n *Nodes) Pause(ctx context.Context, nodes ...string) error {
	return n.runtime(ctx, append([]string{"pause"}, nodes...)...)
}

// Unpause continues the processes of nodes.
func (n *Nodes) Unpause(ctx context.Context, nodes ...string) error {
	return n.runtime(ctx, append([]string{"unpause"}, nodes...)...)
}

// Kill kills all processes of nodes at the same time, as a power failure does.
func (n *Nodes) Kill(ctx context.Context, nodes ...string) error {
	if n.addresses == nil {
		n.addresses = map[string]netip.Addr{}
	}
	for _, node := range nodes {
		address, err := n.address(ctx, node)
		if err != nil {
			return err
		}
		n.addresses[node] = address
	}
	return n.runtime(ctx, append([]string{"kill"}, nodes...)...)
}

// Start starts nodes that were killed, in the order of their former addresses. So they get these again, because Docker
// assigns the lowest one that is free. With another runtime, they may get others, which kind's own images permit.
func (n *Nodes) Start(ctx context.Context, nodes ...string) error {
	byAddress := func(a, b string) int { return n.addresses[a].Compare(n.addresses[b]) }
	for _, node := range slices.SortedFunc(slices.Values(nodes), byAddress) {
		if err := n.runtime(ctx, "start", node); err != nil {
			return err
		}
	}
	return nil
}

// address returns the IPv4 or, without one, the IPv6 address of a node that runs.
func (n *Nodes) address(ctx context.Context, node string) (netip.Addr, error) {
	output, err := n.output(ctx, "inspect", "--format",
		"{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.GlobalIPv6Address}} {{end}}", node)
	if err != nil {
		return netip.Addr{}, err
	}
	fields := strings.Fields(output)
	if len(fields) == 0 {
		return netip.Addr{}, fmt.Errorf("node %s has no address: it doesn't run", node)
	}
	return netip.ParseAddr(fields[0])
}

// Network is that of a node or, if it has the ID of a container, that of the container's pod on this node.
type Network struct{ Node, Container string }

// Direction is one of the directions in which packets pass. The zero value means both.
type Direction string

// The directions, as the node or the pod sees them.
const (
	Received Direction = "received"
	Sent     Direction = "sent"
)

// Packets are those that pass the only device of a network, for example all that a node sends to others. What pods of
// the same node send to each other doesn't pass the device of the node.
type Packets struct {
	// Addresses are those of the other side. Without addresses, all packets are meant.
	Addresses []string
	Direction Direction
	// Percent is the part of the packets, by chance. 0 means all.
	Percent int
}

// table is the name of the nftables table with the rules.
const table = "inet conclave_chaos"

// Drop drops packets until Heal, and none of those that an earlier call meant.
func (n *Nodes) Drop(ctx context.Context, in Network, packets Packets) error {
	return n.nft(ctx, in, dropRules(packets))
}

// Heal lets all packets pass again. It succeeds also if they pass already.
func (n *Nodes) Heal(ctx context.Context, in Network) error { return n.nft(ctx, in, noRules) }

// noRules has no effect if there is no table. Each call of nft is a transaction.
const noRules = "add table " + table + "; delete table " + table

func dropRules(p Packets) string {
	commands := []string{noRules, "add table " + table}
	for _, c := range []struct {
		direction          Direction
		hook, device, side string
	}{{Received, "prerouting", "iifname", "saddr"}, {Sent, "postrouting", "oifname", "daddr"}} {
		if cmp.Or(p.Direction, c.direction) != c.direction {
			continue
		}
		chain := table + " " + string(c.direction)
		commands = append(commands, fmt.Sprintf("add chain %s { type filter hook %s priority -300; }", chain, c.hook))
		for _, from := range families(p.Addresses, c.side) {
			rule := []string{"add rule", chain, c.device, device, from}
			if p.Percent > 0 {
				rule = append(rule, fmt.Sprintf("numgen random mod 100 < %d", p.Percent))
			}
			commands = append(commands, strings.Join(slices.DeleteFunc(append(rule, "drop"),
				func(part string) bool { return part == "" }), " "))
		}
	}
	return strings.Join(commands, "; ")
}

// device is the name of the device of each node and of each pod that has a network of its own.
const device = "eth0"

// families returns a condition for the IPv4 addresses and one for the IPv6 addresses, or one that all packets meet.
func families(addresses []string, side string) (conditions []string) {
	if len(addresses) == 0 {
		return []string{""}
	}
	of := map[string][]string{}
	for _, a := range addresses {
		family := "ip"
		if strings.Contains(a, ":") {
			family = "ip6"
		}
		of[family] = append(of[family], a)
	}
	for _, family := range []string{"ip", "ip6"} {
		if list := of[family]; len(list) > 0 {
			conditions = append(conditions, fmt.Sprintf("%s %s { %s }", family, side, strings.Join(list, ", ")))
		}
	}
	return conditions
}

// findProcess sets $process to a process of the container $1. The name of its cgroup has the container's ID.
const findProcess = `for file in $(grep -l -e "$1" /proc/[0-9]*/cgroup 2>/dev/null); do
	process=${file#/proc/}; break
done
if [ -z "$process" ]; then echo "no process of the container runs" >&2; exit 1; fi
process=${process%/cgroup}
`

// nft runs commands of nft in a network.
func (n *Nodes) nft(ctx context.Context, in Network, commands string) error {
	if in.Container == "" {
		return n.runtime(ctx, "exec", in.Node, "nft", commands)
	}
	return n.inPod(ctx, in, `exec nsenter --target $process --net nft "$2"`, commands)
}

// inPod runs a script on a node that knows a process of a container as $process.
func (n *Nodes) inPod(ctx context.Context, in Network, script string, arguments ...string) error {
	if err := checkContainers([]string{in.Container}); err != nil {
		return err
	}
	return n.shell(ctx, in.Node, findProcess+script, append([]string{in.Container}, arguments...)...)
}

// findDevices calls $tc for the device of a pod and for the other end of it on the node.
const findDevices = `inside="nsenter --target $process --net"
number=$($inside ip -o link show dev ` + device + ` | sed -n 's/.*@if\([0-9]*\):.*/\1/p')
outside=$(ip -o link | sed -n "s/^$number: \([^@:]*\).*/\1/p")
if [ -z "$outside" ]; then echo "the pod has no device whose other end is on the node" >&2; exit 1; fi
`

// Delay delays all packets of a pod, in each direction, until EndDelay. NotDelayed says where that isn't possible.
func (n *Nodes) Delay(ctx context.Context, pod Network, by time.Duration) error {
	return n.inPod(ctx, pod, findDevices+`set -e
$inside tc qdisc replace dev `+device+` root netem delay "$2" limit 100000
tc qdisc replace dev "$outside" root netem delay "$2" limit 100000`, fmt.Sprintf("%dms", by.Milliseconds()))
}

// EndDelay ends a delay. It succeeds also if there is none. Packets that wait are lost.
func (n *Nodes) EndDelay(ctx context.Context, pod Network) error {
	return n.inPod(ctx, pod, findDevices+`$inside tc qdisc del dev `+device+` root 2>/dev/null
tc qdisc del dev "$outside" root 2>/dev/null
if { $inside tc qdisc; tc qdisc show dev "$outside"; } | grep netem >&2; then exit 1; fi`)
}

// NotDelayed returns why a node can't delay packets, or "". Many kernels have netem only as a module.
func (n *Nodes) NotDelayed(ctx context.Context, node string) string {
	const try = "unshare --net tc qdisc add dev lo root netem delay 1ms"
	if n.runtime(ctx, append([]string{"exec", node}, strings.Fields(try)...)...) != nil {
		return "the kernel of node " + node + " can't delay packets: it has no netem"
	}
	return ""
}

// sendSignal sends a signal to all processes of containers. One grep reads all files: one for each process would delay
// the fault by a noticeable part of a failover.
const sendSignal = `signal=$1 quiet=$2; shift 2; found=1
for id; do set -- "$@" -e "$id"; shift; done
files=$(grep -l "$@" /proc/[0-9]*/cgroup 2>/dev/null)
[ $quiet = 0 ] || sleep $quiet
for file in $files; do
	process=${file#/proc/}; if kill -s $signal ${process%/cgroup} 2>/dev/null; then found=0; fi
done
[ $quiet = 0 ] || sleep $quiet
if [ $found != 0 ]; then echo "no process of the containers runs" >&2; fi; exit $found`

// Signal sends a signal, such as KILL, to all processes of containers on a node.
func (n *Nodes) Signal(ctx context.Context, node, signal string, containers ...string) error {
	if err := checkContainers(containers); err != nil {
		return err
	}
	return n.shell(ctx, node, sendSignal, append([]string{signal, fmt.Sprint(n.Quiet.Seconds())}, containers...)...)
}

// minIDLength is shorter than the IDs of containers.
const minIDLength = 32

// checkContainers returns an error unless all strings can be IDs of containers. Processes are found by these IDs in the
// names of cgroups: a short one could be a part of other names, and an empty one is a part of all.
func checkContainers(ids []string) error {
	for _, id := range ids {
		if len(id) < minIDLength {
			return fmt.Errorf("%q isn't the ID of a container", id)
		}
	}
	return nil
}

// ControlPlane returns the nodes of the control plane of a node's cluster.
func (n *Nodes) ControlPlane(ctx context.Context, node string) ([]string, error) {
	const label = "io.x-k8s.kind."
	cluster, err := n.output(ctx, "inspect", "--format", `{{index .Config.Labels "`+label+`cluster"}}`, node)
	if err != nil {
		return nil, err
	}
	names, err := n.output(ctx, "ps", "--format", "{{.Names}}", "--filter", "label="+label+"cluster="+cluster,
		"--filter", "label="+label+"role=control-plane")
	if err == nil && names == "" {
		err = fmt.Errorf("node %s isn't one of a kind cluster", node)
	}
	return strings.Fields(names), err
}

// shell runs a shell script on a node.
func (n *Nodes) shell(ctx context.Context, node, script string, arguments ...string) error {
	return n.runtime(ctx, append([]string{"exec", node, "sh", "-c", script, "sh"}, arguments...)...)
}

func (n *Nodes) runtime(ctx context.Context, arguments ...string) error {
	_, err := n.output(ctx, arguments...)
	return err
}

// output runs a command of the container runtime, and returns its output. The error has the last line of it.
func (n *Nodes) output(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, n.Runtime, arguments...) //nolint:gosec // the user names the runtime
	output, err := command.CombinedOutput()
	text := strings.TrimSpace(string(output))
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(n.Runtime), err, text[strings.LastIndexByte(text, '\n')+1:])
	}
	return text, nil
}
