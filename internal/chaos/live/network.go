package live

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
)

// table is the name of the nftables table in the network namespace of a pod.
const table = "inet conclave_chaos"

// runNFT runs nft commands in the network namespace of a container, which it finds by the container's ID in the name of a cgroup.
const runNFT = `for file in $(grep -l -e "$1" /proc/[0-9]*/cgroup 2>/dev/null); do
	process=${file#/proc/}; exec nsenter --target ${process%/cgroup} --net nft "$2"
done
echo "no process of the container runs" >&2; exit 1`

// filter runs nft commands in the network namespace of a pod, of which this is a container.
func (m *localMachines) filter(ctx context.Context, node, container, commands string) error {
	if err := nodefault.CheckContainers([]string{container}); err != nil {
		return err
	}
	return m.shell(ctx, node, runNFT, container, commands)
}

// dropRules are the nft commands that drop a percentage of the packets to and from the addresses. 0 means all.
func dropRules(addresses []string, percent int) string {
	packets := ""
	if percent > 0 {
		packets = fmt.Sprintf("numgen random mod 100 < %d", percent)
	}
	commands := []string{"add table " + table}
	for _, chain := range []struct{ name, field string }{{"input", "saddr"}, {"output", "daddr"}} {
		commands = append(commands, fmt.Sprintf("add chain %s %s { type filter hook %s priority 0; }", table, chain.name, chain.name))
		for _, a := range addresses {
			family := "ip"
			if address, err := netip.ParseAddr(a); err == nil && address.Is6() {
				family = "ip6"
			}
			commands = append(commands, strings.Join(strings.Fields(fmt.Sprintf("add rule %s %s %s %s %s %s drop", table, chain.name, family, chain.field, a, packets)), " "))
		}
	}
	return strings.Join(commands, "; ")
}
