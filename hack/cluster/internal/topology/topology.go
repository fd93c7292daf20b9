// Package topology says which machines a cluster has, what they are called, and which addresses they have. It is pure.
//
// Every address lives in network namespaces that belong to one cluster alone: nothing of it is seen by the host or by
// another cluster. So all clusters use the same addresses, and two of them side by side can't collide.
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

	// NodesMax bounds the number of nodes. Each machine has a route to every node that there may be, so that a node can
	// be added later without touching the others.
	NodesMax = 32

	// APIServerPort is where the API server listens on the control plane's address.
	APIServerPort = 6443

	// ClusterDomain is what the names of Services end in.
	ClusterDomain = "cluster.local"

	controlPlaneHost = 10 // The last octet of the control plane's address; node n has this plus n.
)

var (
	// MachineNet holds the address of every machine.
	MachineNet = netip.MustParsePrefix("172.30.0.0/24")
	// PodNet holds the pods of all nodes; node n has the n-th /24 of it.
	PodNet = netip.MustParsePrefix("10.244.0.0/16")
	// ServiceNet holds the ClusterIPs.
	ServiceNet = netip.MustParsePrefix("10.96.0.0/16")
	// APIServerServiceIP is the ClusterIP of the Service "kubernetes", by convention the first.
	APIServerServiceIP = ServiceNet.Addr().Next()

	clusterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$`)
)

// CheckName refuses names of clusters that wouldn't do as part of a namespace's, a cgroup's and a file's name.
func CheckName(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("the cluster's name %q must be 1 to 20 lower-case letters, digits and inner dashes", name)
	}
	return nil
}

// Machine is one of the machines that a cluster is made of: number 0 is the control plane, the others are nodes.
type Machine struct {
	Name   string
	Number int
}

// ControlPlane is the machine without pods.
func ControlPlane() Machine { return Machine{Name: ControlPlaneName} }

// Node is the n-th node, counted from 1.
func Node(number int) Machine {
	return Machine{Name: fmt.Sprintf("node-%d", number), Number: number}
}

// Machines lists the control plane and so many nodes.
func Machines(nodes int) ([]Machine, error) {
	if nodes < 0 || nodes > NodesMax {
		return nil, fmt.Errorf("a cluster has 0 to %d nodes, not %d", NodesMax, nodes)
	}
	machines := []Machine{ControlPlane()}
	for number := 1; number <= nodes; number++ {
		machines = append(machines, Node(number))
	}
	return machines, nil
}

// IsControlPlane tells the control plane from the nodes.
func (m Machine) IsControlPlane() bool { return m.Number == 0 }

// IP is the machine's address.
func (m Machine) IP() netip.Addr {
	octets := MachineNet.Addr().As4()
	octets[3] = byte(controlPlaneHost + m.Number)
	return netip.AddrFrom4(octets)
}

// MAC is derived from the address, so that a machine that was killed and started again is found at once by peers that
// remember where its address was.
func (m Machine) MAC() net.HardwareAddr {
	octets := m.IP().As4()
	return net.HardwareAddr{0x02, 0x00, octets[0], octets[1], octets[2], octets[3]}
}

// PodCIDR is where the node's pods have their addresses.
func (m Machine) PodCIDR() netip.Prefix {
	octets := PodNet.Addr().As4()
	octets[2] = byte(m.Number)
	return netip.PrefixFrom(netip.AddrFrom4(octets), 24)
}

// Route sends the packets for a net through another machine.
type Route struct {
	To  netip.Prefix
	Via netip.Addr // The zero Addr: to the link itself.
}

// Routes are those that the machine needs beside the one of its own link: to the pods of every other node, and for
// ClusterIPs. The latter lead nowhere; the kernel only wants some route before kube-proxy's rules rewrite the address.
func (m Machine) Routes() []Route {
	routes := []Route{{To: ServiceNet}}
	for number := 1; number <= NodesMax; number++ {
		if number != m.Number {
			routes = append(routes, Route{To: Node(number).PodCIDR(), Via: Node(number).IP()})
		}
	}
	return routes
}
