//go:build linux

package nodefault

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ThisNode is the node on which this process runs, with the process IDs and the network of the host.
type ThisNode struct{}

var errNoProcess = errors.New("no process of the containers runs")

// errHostNetwork means that the fault would concern other pods of the node, and the node itself.
var errHostNetwork = errors.New("the pod uses the network of its node")

// ownNetwork is the network namespace of this process.
const ownNetwork = "/proc/self/ns/net"

// Check returns the actions with the reasons for which they aren't possible.
func (ThisNode) Check(r *Request) map[string]string {
	actions := map[string]string{Kill: "", Stop: "", Drop: "", Delay: "", Isolate: ""}
	if _, err := uplinks(r.Addresses); err != nil {
		actions[Isolate] = err.Error()
	}
	if err := tryRule(append(some(1), drop)); err != nil {
		actions[Drop] = err.Error()
		actions[Isolate] = err.Error()
	}
	if _, err := queueRule(); err != nil {
		actions[Delay] = err.Error()
	}
	return actions
}

// tryRule reports whether the kernel accepts a rule.
func tryRule(r rule) error {
	t, err := openTable(newNetwork)
	if err != nil {
		return err
	}
	defer t.Close()
	return t.add(chain{name: "check", hook: unix.NF_INET_LOCAL_OUT, rules: []rule{r}})
}

// queueRule returns the rule by which the kernel of this node lets packets wait in a queue.
func queueRule() (rule, error) {
	q, err := openQueue(newNetwork, 0)
	if err != nil {
		return nil, err
	}
	if err := q.Close(); err != nil {
		return nil, err
	}
	r := rule{enqueue}
	err = tryRule(r)
	if err == nil {
		return r, nil
	}
	r = rule{enqueueAsIPTables}
	if tryRule(r) == nil {
		return r, nil
	}
	return nil, fmt.Errorf("the kernel has no rules that lead to queues: %w", err)
}

// Inject injects a fault.
func (ThisNode) Inject(r *Request) (undo func() error, err error) {
	switch r.Action {
	case Kill:
		return nil, signalSome(r.Containers, unix.SIGKILL)
	case Stop:
		undo := func() error {
			_, err := signal(r.Containers, unix.SIGCONT)
			return err
		}
		if err := signalSome(r.Containers, unix.SIGSTOP); err != nil {
			_ = undo() // Some processes may have stopped.
			return nil, err
		}
		return undo, nil
	case Drop, Delay:
		return disturb(r)
	case Isolate:
		return isolate(r)
	}
	return nil, fmt.Errorf("action %q is unknown", r.Action)
}

func signalSome(containers []string, number unix.Signal) error {
	count, err := signal(containers, number)
	if err == nil && count == 0 {
		err = errNoProcess
	}
	return err
}

// disturb drops or delays packets in the network of a container.
func disturb(r *Request) (undo func() error, err error) {
	found, err := processes(r.Containers)
	if err != nil {
		return nil, err
	}
	network, err := networkOf(found)
	if err != nil {
		return nil, err
	}
	if r.Action == Delay {
		return delayPackets(network, r)
	}
	var part rule
	if r.Percent > 0 {
		part = some(r.Percent)
	}
	t, err := addTableFor(network, r.Addresses, append(part, drop))
	if err != nil {
		return nil, err
	}
	return t.Close, nil
}

// delayPackets lets packets wait in a queue.
func delayPackets(network string, r *Request) (undo func() error, err error) {
	wait, err := queueRule()
	if err != nil {
		return nil, err
	}
	q, err := openQueue(network, r.Delay)
	if err != nil {
		return nil, err
	}
	t, err := addTableFor(network, r.Addresses, wait)
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return func() error {
		// If one of these fails, the packets that wait are lost, as others may be. The fault ends in any case.
		_, _ = t.removeRules(), q.Close()
		return t.Close()
	}, nil
}

// networkOf returns the network namespace of processes of a pod. It mustn't be that of the node, where the rules would also drop the
// packets of others. A process that is being started in a container is in that for a moment, too.
func networkOf(found []int) (string, error) {
	own, err := os.Stat(ownNetwork)
	if err != nil {
		return "", err
	}
	err = errNoProcess
	for _, process := range found {
		network := fmt.Sprintf("/proc/%d/ns/net", process)
		its, failed := os.Stat(network)
		switch {
		case failed != nil: // The process has ended.
		case os.SameFile(own, its):
			err = errHostNetwork
		default:
			return network, nil
		}
	}
	return "", err
}

// addTableFor adds a table that applies a rule to packets from and to these addresses.
func addTableFor(network string, addresses []string, r rule) (*table, error) {
	input, output := chain{name: "input", hook: unix.NF_INET_LOCAL_IN}, chain{name: "output", hook: unix.NF_INET_LOCAL_OUT}
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		address = address.Unmap()
		input.rules = append(input.rules, join(from(address), r))
		output.rules = append(output.rules, join(to(address), r))
	}
	return addTable(network, input, output)
}

// isolate drops all packets that enter or leave the node. Packets between its pods pass.
func isolate(r *Request) (undo func() error, err error) {
	names, err := uplinks(r.Addresses)
	if err != nil {
		return nil, err
	}
	t, err := addIsolateTable(ownNetwork, names)
	if err != nil {
		return nil, err
	}
	return t.Close, nil
}

func addIsolateTable(network string, uplinks []string) (*table, error) {
	in, out := chain{name: "in", hook: unix.NF_INET_PRE_ROUTING}, chain{name: "out", hook: unix.NF_INET_POST_ROUTING}
	for _, name := range uplinks {
		in.rules = append(in.rules, join(enters(name), rule{drop}))
		out.rules = append(out.rules, join(leaves(name), rule{drop}))
	}
	return addTable(network, in, out)
}

// uplinks returns the interfaces with one of these addresses of the node, and those that are devices.
func uplinks(addresses []string) (names []string, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	found := false
	for _, i := range all {
		own, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		has := slices.ContainsFunc(own, func(a net.Addr) bool {
			prefix, ok := a.(*net.IPNet)
			return ok && slices.Contains(addresses, prefix.IP.String())
		})
		found = found || has
		if _, err := os.Stat(filepath.Join("/sys/class/net", i.Name, "device")); has || err == nil {
			names = append(names, i.Name)
		}
	}
	if !found {
		return nil, fmt.Errorf("no interface of the node has the address %s", strings.Join(addresses, " or "))
	}
	return names, nil
}

// addTable adds a table to a network.
func addTable(network string, chains ...chain) (*table, error) {
	t, err := openTable(network)
	if err != nil {
		return nil, err
	}
	if err := t.add(chains...); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}
