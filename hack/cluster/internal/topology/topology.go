// Package topology defines the machines of a cluster, their names and their addresses. It has no side effects.
//
// Addresses exist only in the network namespaces of one cluster; the host and other clusters don't see them. Therefore all
// clusters use the same addresses without conflicts.
package topology

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
)

const (
	// ControlPlaneName is the machine that runs etcd, the API server, the controller manager and the scheduler.
	ControlPlaneName = "control-plane"

	// NodesMax is the maximum number of nodes. Each machine has a route to every possible node, so that nodes can be added
	// later without a change to other machines.
	NodesMax = 32

	// APIServerPort is the port of the API server on the control plane's address.
	APIServerPort = 6443

	// ClusterDomain is the DNS domain of the cluster.
	ClusterDomain = "cluster.local"

	controlPlaneHost = 10 // The last octet of the control plane's address. Node n has this plus n.
)

var (
	// MachineNet is the network of the machines.
	MachineNet = netip.MustParsePrefix("172.30.0.0/24")
	// PodNet is the network of the pods. The pods of node n are in its n-th /24 network.
	PodNet = netip.MustParsePrefix("10.244.0.0/16")
	// ServiceNet is the network of the ClusterIPs.
	ServiceNet = netip.MustParsePrefix("10.96.0.0/16")
	// APIServerServiceIP is the ClusterIP of the Service "kubernetes": by convention the first one.
	APIServerServiceIP = ServiceNet.Addr().Next()

	clusterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$`)
)

// CheckName checks that a cluster name can be part of the names of namespaces, cgroups and files.
func CheckName(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("the cluster name must be 1 to 20 lower-case letters, digits and inner dashes, got %q", name)
	}
	return nil
}

// Machine is a machine of a cluster. Number 0 is the control plane, the others are nodes.
type Machine struct {
	Name   string
	Number int
}

// ControlPlane returns the control plane, which runs no pods.
func ControlPlane() Machine { return Machine{Name: ControlPlaneName} }

// Node returns the node with this number. Numbers start at 1.
func Node(number int) Machine {
	return Machine{Name: fmt.Sprintf("node-%d", number), Number: number}
}

// Machines returns the control plane and the nodes 1 to nodes.
func Machines(nodes int) ([]Machine, error) {
	if nodes < 0 || nodes > NodesMax {
		return nil, fmt.Errorf("the number of nodes must be 0 to %d, got %d", NodesMax, nodes)
	}
	machines := []Machine{ControlPlane()}
	for number := 1; number <= nodes; number++ {
		machines = append(machines, Node(number))
	}
	return machines, nil
}

// IsControlPlane reports whether the machine is the control plane.
func (m Machine) IsControlPlane() bool { return m.Number == 0 }

// IP returns the machine's address.
func (m Machine) IP() netip.Addr {
	octets := MachineNet.Addr().As4()
	octets[3] = byte(controlPlaneHost + m.Number)
	return netip.AddrFrom4(octets)
}

// MAC returns the machine's hardware address. It is derived from the IP address, so that the ARP caches of peers remain
// valid when the machine restarts.
func (m Machine) MAC() net.HardwareAddr {
	octets := m.IP().As4()
	return net.HardwareAddr{0x02, 0x00, octets[0], octets[1], octets[2], octets[3]}
}

// PodCIDR returns the network of the node's pods.
func (m Machine) PodCIDR() netip.Prefix {
	octets := PodNet.Addr().As4()
	octets[2] = byte(m.Number)
	return netip.PrefixFrom(netip.AddrFrom4(octets), 24)
}

// Route is a route to a network.
type Route struct {
	To  netip.Prefix
	Via netip.Addr // The next hop. If it is zero, the network is on the link.
}

// Routes returns the machine's routes besides that of its link: to the pods of every other node, and to the ClusterIPs.
// kube-proxy's rules rewrite ClusterIPs, but the kernel requires a route before it applies the rules.
func (m Machine) Routes() []Route {
	routes := []Route{{To: ServiceNet}}
	for number := 1; number <= NodesMax; number++ {
		if number != m.Number {
			routes = append(routes, Route{To: Node(number).PodCIDR(), Via: Node(number).IP()})
		}
	}
	return routes
}
