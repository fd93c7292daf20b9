package live

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conclave-dev/conclave/internal/chaos"
)

const (
	// lossPercent is the part of the packets that a fault of kind loss drops, and lossTime is how long.
	lossPercent = 30
	lossTime    = 5 * time.Second
)

// table is the name of the nftables table in the network namespace of a pod.
const table = "inet conclave_chaos"

// runNFT runs nft commands in the network namespace of a container, which it finds by the container's ID in the name of a cgroup.
const runNFT = `for file in $(grep -l -e "$1" /proc/[0-9]*/cgroup 2>/dev/null); do
	process=${file#/proc/}; exec nsenter --target ${process%/cgroup} --net nft "$2"
done
echo "no process of the container runs" >&2; exit 1`

// filter runs nft commands in the network namespace of a pod, of which this is a container.
func (m *Machines) filter(ctx context.Context, node, container, commands string) error {
	return m.shell(ctx, node, runNFT, container, commands)
}

// dropRules are the nft commands that drop these packets to and from the addresses.
func dropRules(addresses []string, packets string) string {
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

// cutOff drops packets between the target and the other members: all, or some of them.
func (r *Run) cutOff(ctx context.Context, kind string, target chaos.PodState, pod *corev1.Pod) (injection, error) {
	var others []string
	for _, p := range inspect(r.observer, func(_ *chaos.Record, s *chaos.State) []chaos.PodState { return s.Pods }) {
		if p.UID != target.UID && p.IP != "" {
			others = append(others, p.IP)
		}
	}
	ids := containers(pod, kind)
	if len(ids) == 0 || len(others) == 0 {
		return injection{}, &refusedError{"no container of pod " + target.Pod + " runs, or there is no other pod"}
	}
	done := injection{at: time.Now(), undo: func(ctx context.Context) error { return r.reconnect(ctx, target) }}
	packets := ""
	if kind == chaos.Loss {
		packets, done.hold = fmt.Sprintf("numgen random mod 100 < %d", lossPercent), lossTime
	}
	return done, r.Machines.filter(ctx, target.Node, ids[0], dropRules(others, packets))
}

// reconnect undoes cutOff. If the pod is gone, its network namespace is, too.
func (r *Run) reconnect(ctx context.Context, target chaos.PodState) error {
	pod := r.observer.pod(target.UID)
	if pod == nil {
		return nil
	}
	ids := containers(pod, chaos.Partition) // The former ones may have ended meanwhile.
	if len(ids) == 0 {
		return fmt.Errorf("no container of pod %s runs", target.Pod)
	}
	return r.Machines.filter(ctx, target.Node, ids[0], "delete table "+table)
}
