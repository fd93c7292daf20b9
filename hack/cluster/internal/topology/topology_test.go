package topology

import (
	"net/netip"
	"testing"
)

func TestNamesAndAddressesAreUnique(t *testing.T) {
	machines, err := Machines(NodesMax)
	if err != nil {
		t.Fatal(err)
	}
	names, addresses, pods := map[string]bool{}, map[netip.Addr]bool{}, map[netip.Prefix]bool{}
	for _, machine := range machines {
		if names[machine.Name] || addresses[machine.IP()] {
			t.Errorf("got %s (%s) twice", machine.Name, machine.IP())
		}
		names[machine.Name], addresses[machine.IP()] = true, true
		if !MachineNet.Contains(machine.IP()) {
			t.Errorf("got address %s of %s, want one in %s", machine.IP(), machine.Name, MachineNet)
		}
		if len(machine.Name) > 15 {
			t.Errorf("got name %s, want at most 15 bytes for a network device", machine.Name)
		}
		if machine.IsControlPlane() {
			continue
		}
		if pods[machine.PodCIDR()] || !PodNet.Overlaps(machine.PodCIDR()) {
			t.Errorf("%s: got pod network %s", machine.Name, machine.PodCIDR())
		}
		pods[machine.PodCIDR()] = true
	}
}

func TestNetworksDontOverlap(t *testing.T) {
	nets := []netip.Prefix{MachineNet, PodNet, ServiceNet}
	for i, a := range nets {
		for _, b := range nets[i+1:] {
			if a.Overlaps(b) {
				t.Errorf("%s overlaps %s", a, b)
			}
		}
	}
}

// Each machine has routes to the pods of all other nodes, including nodes that are added later.
func TestMachinesHaveRoutesToAllNodes(t *testing.T) {
	for _, machine := range []Machine{ControlPlane(), Node(1), Node(NodesMax)} {
		via := map[netip.Prefix]netip.Addr{}
		for _, route := range machine.Routes() {
			via[route.To] = route.Via
		}
		if _, found := via[ServiceNet]; !found {
			t.Errorf("%s: got no route for ClusterIPs", machine.Name)
		}
		for number := 1; number <= NodesMax; number++ {
			node := Node(number)
			next, found := via[node.PodCIDR()]
			if own := node == machine; own == found || found && next != node.IP() {
				t.Errorf("%s: got route to the pods of %s via %s (found: %t)", machine.Name, node.Name, next, found)
			}
		}
	}
}

func TestMachinesRejectsInvalidNumbers(t *testing.T) {
	for _, nodes := range []int{-1, NodesMax + 1} {
		if machines, err := Machines(nodes); err == nil {
			t.Errorf("%d nodes: got %d machines, want an error", nodes, len(machines))
		}
	}
	if machines, err := Machines(0); err != nil || len(machines) != 1 {
		t.Errorf("0 nodes: got %v, error %v", machines, err)
	}
}

func TestCheckNameAcceptsShortDNSLabels(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "conclave": true, "a-1": true, "abcdefghijklmnopqrst": true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, "a/b": false, "..": false, "abcdefghijklmnopqrstu": false,
	} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("%q: got error %v, want valid %t", name, err, good)
		}
	}
}
