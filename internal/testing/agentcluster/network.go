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

// Cut is a direction in which no packet arrives any more.
type Cut struct{ From, To string }

// errWholeNetwork: there is no network that the troupe may break.
var errWholeNetwork = errors.New("packets are lost only in a network namespace of the troupe's own: call Main in TestMain")

// Partition lets no packet pass between two agents of different sets. An agent
// in none of them reaches everybody, so it is a bridge.
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

// Cut loses the packets in these directions and in no others. Nobody is told:
// connections stay open, as they do when a cable is pulled out.
func (t *Cluster) Cut(cuts ...Cut) error {
	if !inOwnNetwork() {
		return errWholeNetwork
	}
	pairs := make([]string, len(cuts))
	for i, cut := range cuts {
		pairs[i] = t.Agent(cut.From).Host + " . " + t.Agent(cut.To).Host
	}
	slices.Sort(pairs)
	// The former table goes and the new one comes in one transaction: no packet slips through in between.
	table := t.table()
	var rules strings.Builder
	fmt.Fprintf(&rules, "add table ip %s\ndelete table ip %s\n", table, table)
	if len(pairs) > 0 {
		fmt.Fprintf(&rules, `table ip %s {
	set cut { type ipv4_addr . ipv4_addr; elements = { %s } }
	chain input { type filter hook input priority 0; ip saddr . ip daddr @cut drop; }
}
`, table, strings.Join(slices.Compact(pairs), ", "))
	}
	return nft(t.ctx, rules.String())
}

// Heal lets all packets pass again.
func (t *Cluster) Heal() error {
	if !inOwnNetwork() {
		return nil
	}
	return t.Cut()
}

// table has the name of the troupe's neighbourhood.
func (t *Cluster) table() string { return "troupe_" + strings.ReplaceAll(t.agents[0].Host, ".", "_") }

func nft(ctx context.Context, rules string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(rules)
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w\n%s", err, said)
	}
	return nil
}

// ownNetwork is the variable that tells a program that it has been started in a
// network namespace that it may break.
const ownNetwork = "CONCLAVE_TROUPE_NETWORK"

func inOwnNetwork() bool { return os.Getenv(ownNetwork) != "" }

// Separate makes a command start in a network namespace of its own. Whoever
// isn't root becomes it, in there.
func Separate(command *exec.Cmd) {
	command.Env = append(command.Environ(), ownNetwork+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		command.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
}

// furnish makes a new network namespace usable, and finds out whether packets
// can be lost in it.
func furnish(ctx context.Context) error {
	if err := raiseLoopback(); err != nil {
		return fmt.Errorf("switch the loopback interface on: %w", err)
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
