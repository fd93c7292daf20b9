package agentcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Cut is a direction in which packets are dropped.
type Cut struct{ From, To string }

// errSharedNetwork: the cluster runs in the network namespace of the machine.
var errSharedNetwork = errors.New(
	"cannot drop packets outside a network namespace of the cluster: call Main in TestMain")

// Partition drops all packets between agents of different sets. An agent in none of the
// sets keeps all its links, so it bridges the partition.
func (t *Cluster) Partition(sets ...[]string) error {
	var cuts []Cut
	for i, set := range sets {
		for j, other := range sets {
			if i == j {
				continue
			}
			for _, from := range set {
				for _, to := range other {
					cuts = append(cuts, Cut{from, to})
				}
			}
		}
	}
	return t.Cut(cuts...)
}

// Cut drops packets in these directions and in no others. Connections stay open and no
// process is notified, as when a cable is unplugged.
func (t *Cluster) Cut(cuts ...Cut) error { return t.filter("drop", cuts) }

// Reject answers packets in these directions, and in no others, with the ICMP message of a firewall. It drops them.
func (t *Cluster) Reject(cuts ...Cut) error {
	return t.filter("meta l4proto tcp reject with icmp port-unreachable", cuts)
}

func (t *Cluster) filter(verdict string, cuts []Cut) error {
	if !inOwnNetwork() {
		return errSharedNetwork
	}
	pairs := make([]string, len(cuts))
	for i, cut := range cuts {
		pairs[i] = t.Agent(cut.From).Host + " . " + t.Agent(cut.To).Host
	}
	slices.Sort(pairs)
	// One transaction replaces the table, so no packet passes in between.
	table := t.table()
	var rules strings.Builder
	fmt.Fprintf(&rules, "add table ip %s\ndelete table ip %s\n", table, table)
	if len(pairs) > 0 {
		fmt.Fprintf(&rules, `table ip %s {
	set cut { type ipv4_addr . ipv4_addr; elements = { %s } }
	chain input { type filter hook input priority 0; ip saddr . ip daddr @cut %s; }
}
`, table, strings.Join(slices.Compact(pairs), ", "), verdict)
	}
	return nft(t.ctx, rules.String())
}

// Heal stops dropping packets.
func (t *Cluster) Heal() error {
	if !inOwnNetwork() {
		return nil
	}
	return t.Cut()
}

// table is the name of the nftables table, derived from the cluster's subnet.
func (t *Cluster) table() string {
	return "conclave_test_" + strings.ReplaceAll(t.agents[0].Host, ".", "_")
}

func nft(ctx context.Context, rules string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(rules)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w\n%s", err, output)
	}
	return nil
}

// ownNetwork is an environment variable. It tells a program that it runs in a network namespace of its own.
const ownNetwork = "CONCLAVE_TEST_NETWORK"

func inOwnNetwork() bool { return os.Getenv(ownNetwork) != "" }

// InOwnNetwork makes a command start in a network namespace of its own. A user other
// than root also gets a user namespace and is root inside it.
func InOwnNetwork(command *exec.Cmd) {
	command.Env = append(command.Environ(), ownNetwork+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		command.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
}

// SetUpNetwork enables the loopback interface of a new network namespace and checks that packets can be dropped in it.
func SetUpNetwork(ctx context.Context) error {
	if err := raiseLoopback(); err != nil {
		return fmt.Errorf("cannot enable the loopback interface: %w", err)
	}
	return nft(ctx, `table ip probe {
	set cut { type ipv4_addr . ipv4_addr; }
	chain input { type filter hook input priority 0; ip saddr . ip daddr @cut drop; }
}
delete table ip probe
`)
}

func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}
