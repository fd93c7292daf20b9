//go:build linux

package nodefault

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// network is the file of a new network namespace, which ends with the test.
func network(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("nft"); os.Geteuid() != 0 || err != nil {
		need.Skip(t, "root and nft: it changes the rules of network namespaces")
	}
	holder := exec.Command("cat") // It runs until its standard input is closed.
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	in, err := holder.StdinPipe()
	must.Succeed(t, err)
	must.Succeed(t, holder.Start())
	t.Cleanup(func() { in.Close(); _ = holder.Wait() })
	return fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)
}

// tables returns the tables in a network, as nft prints them.
func tables(t *testing.T, network string) string {
	t.Helper()
	output, err := exec.Command("nsenter", "--net="+network, "nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return string(output)
}

// nft reads the rules as it would write them.
func TestRulesDropPackets(t *testing.T) {
	in := network(t)
	table, err := addTableFor(in, []string{"10.0.0.1", "fd00::1"}, append(some(30), drop))
	must.Succeed(t, err)
	got := tables(t, in)
	for _, want := range []string{
		"table inet conclave_chaos {", "type filter hook input priority filter; policy accept;", "type filter hook output priority filter; policy accept;",
		"ip saddr 10.0.0.1 numgen random mod 100 < 30 drop", "ip6 saddr fd00::1 numgen random mod 100 < 30 drop",
		"ip daddr 10.0.0.1 numgen random mod 100 < 30 drop", "ip6 daddr fd00::1 numgen random mod 100 < 30 drop",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got rules\n%s\nwant %s", got, want)
		}
	}
	must.Succeed(t, table.Close())
	if got := tables(t, in); got != "" {
		t.Errorf("got rules\n%s\nwant none after the fault", got)
	}
}

func TestIsolatedNodeHasNoUplink(t *testing.T) {
	in := network(t)
	table, err := addIsolateTable(in, []string{"eth0"})
	must.Succeed(t, err)
	defer table.Close()
	got := tables(t, in)
	for _, want := range []string{"hook prerouting priority filter", `iifname "eth0" drop`, "hook postrouting priority filter", `oifname "eth0" drop`} {
		if !strings.Contains(got, want) {
			t.Errorf("got rules\n%s\nwant %s", got, want)
		}
	}
}

// In the network of the node, the rules would drop packets of other pods.
func TestPacketsOfTheNodeAreNotDropped(t *testing.T) {
	own := os.Getpid() // Its network is that of this process.
	if got, err := networkOf([]int{own}); !errors.Is(err, errHostNetwork) {
		t.Errorf("got %s, %v, want an error", got, err)
	}
	in := network(t)
	var other int
	if _, err := fmt.Sscanf(in, "/proc/%d/ns/net", &other); err != nil {
		t.Fatal(err)
	}
	if got, err := networkOf([]int{own, other}); got != in || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, in)
	}
}

func TestOneFaultInANetworkAtATime(t *testing.T) {
	in := network(t)
	table, err := addIsolateTable(in, []string{"eth0"})
	must.Succeed(t, err)
	defer table.Close()
	if _, err := addIsolateTable(in, []string{"eth0"}); err == nil || err.Error() != "another process has a table conclave_chaos: operation not permitted" {
		t.Errorf("got %v, want that another process has a table", err)
	}
}

func TestUplinksHaveTheAddressOfTheNode(t *testing.T) {
	names, err := uplinks([]string{"127.0.0.1"})
	must.Succeed(t, err)
	loopback, err := net.InterfaceByName(names[0])
	if err != nil || loopback.Flags&net.FlagLoopback == 0 {
		t.Errorf("got %v, want the interface with the address, and devices", names)
	}
	if names, err := uplinks([]string{"192.0.2.1"}); err == nil || err.Error() != "no interface of the node has the address 192.0.2.1" {
		t.Errorf("got %v, %v, want an error", names, err)
	}
}

// A short ID would select processes of other containers, and an empty one all processes.
func TestContainersNeedWholeIDs(t *testing.T) {
	for _, id := range []string{"", "abc"} {
		if found, err := processes([]string{id}); err == nil || err.Error() != fmt.Sprintf("%q isn't the ID of a container", id) {
			t.Errorf("got %d processes, %v, want an error", len(found), err)
		}
	}
}

func TestFaultsNeedProcesses(t *testing.T) {
	for _, action := range []string{Kill, Stop, Drop, Delay} {
		_, err := ThisNode{}.Inject(&Request{Action: action, Containers: []string{strings.Repeat("0f", 32)}, Addresses: []string{"10.0.0.1"}})
		if !errors.Is(err, errNoProcess) {
			t.Errorf("%s: got %v, want %v", action, err, errNoProcess)
		}
	}
}
