// Package network implements the network between the machines of one cluster. It consists of a switch, which is a bridge
// in a network namespace without processes, and of a network namespace for each machine, connected to the switch by a
// cable, which is a veth pair. To partition a machine, Unplug disables the switch's end of its cable: packets are dropped,
// and no process is notified.
package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
)

const (
	// Dir contains a file for each network namespace. It isn't /run/netns: the first use of "ip netns" mounts that folder over
	// itself, and then the files in it can't be removed.
	Dir = "/run/conclave-netns"

	bridgeName = "bridge"
	switchName = "switch"
	machineEnd = "eth0" // The machine's end of the cable. The switch's end has the machine's name.
)

// Network is the network of one cluster.
type Network struct {
	Cluster string
}

func (n Network) prefix() string { return "conclave-" + n.Cluster + "." }

func (n Network) namespace(name string) string { return n.prefix() + name }

// Netns returns the file of the machine's network namespace.
func (n Network) Netns(machine topology.Machine) string {
	return filepath.Join(Dir, n.namespace(machine.Name))
}

// CreateSwitch creates the switch if it doesn't exist. It replaces what an interrupted creation has left: the file of a namespace
// without the namespace, or the namespace without a bridge that is enabled.
func (n Network) CreateSwitch() error {
	name := n.namespace(switchName)
	if hasSwitch(name) {
		return nil
	}
	if err := removeNamespace(name); err != nil {
		return err
	}
	if err := createNamespace(name); err != nil {
		return err
	}
	handle, err := open(name)
	if err != nil {
		return err
	}
	defer handle.Close()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = bridgeName
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	if err := handle.LinkAdd(bridge); err != nil {
		return fmt.Errorf("cannot create a bridge: %w (the kernel needs CONFIG_BRIDGE)", err)
	}
	if err := handle.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("cannot enable the bridge: %w", err)
	}
	return nil
}

func hasSwitch(name string) bool {
	handle, err := open(name)
	if err != nil {
		return false
	}
	defer handle.Close()
	bridge, err := handle.LinkByName(bridgeName)
	return err == nil && bridge.Attrs().Flags&net.FlagUp != 0
}

// Connect recreates the machine's network namespace and its cable, and plugs the cable in.
func (n Network) Connect(machine topology.Machine) error {
	if err := n.Disconnect(machine); err != nil {
		return err
	}
	name := n.namespace(machine.Name)
	if err := createNamespace(name); err != nil {
		return err
	}
	network, err := netns.GetFromPath(filepath.Join(Dir, name))
	if err != nil {
		return fmt.Errorf("cannot open the network namespace %s: %w", name, err)
	}
	defer network.Close()
	if err := n.plug(machine, network); err != nil {
		return fmt.Errorf("cannot connect %s to the switch: %w", machine.Name, err)
	}
	if err := configure(machine, network); err != nil {
		return fmt.Errorf("cannot configure the network of %s: %w", machine.Name, err)
	}
	return nil
}

func (n Network) plug(machine topology.Machine, network netns.NsHandle) error {
	handle, err := open(n.namespace(switchName))
	if err != nil {
		return err
	}
	defer handle.Close()
	bridge, err := handle.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("cannot find the bridge: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = machine.Name
	attributes.MasterIndex = bridge.Attrs().Index
	cable := &netlink.Veth{
		LinkAttrs: attributes, PeerName: machineEnd, PeerNamespace: netlink.NsFd(network), PeerHardwareAddr: machine.MAC(),
	}
	if err := handle.LinkAdd(cable); err != nil {
		return fmt.Errorf("cannot create a cable: %w (the kernel needs CONFIG_VETH)", err)
	}
	return handle.LinkSetUp(cable)
}

func configure(machine topology.Machine, network netns.NsHandle) error {
	handle, err := netlink.NewHandleAt(network, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer handle.Close()
	loopback, err := handle.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := handle.LinkSetUp(loopback); err != nil {
		return err
	}
	link, err := handle.LinkByName(machineEnd)
	if err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: &net.IPNet{
		IP: machine.IP().AsSlice(), Mask: net.CIDRMask(topology.MachineNet.Bits(), machine.IP().BitLen()),
	}}
	if err := handle.AddrAdd(link, address); err != nil {
		return fmt.Errorf("cannot add the address %s: %w", machine.IP(), err)
	}
	if err := handle.LinkSetUp(link); err != nil {
		return err
	}
	for _, route := range machine.Routes() {
		if err := handle.RouteAdd(toKernel(route, link)); err != nil {
			return fmt.Errorf("cannot add a route to %s: %w", route.To, err)
		}
	}
	return nil
}

func toKernel(route topology.Route, link netlink.Link) *netlink.Route {
	kernel := &netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       &net.IPNet{IP: route.To.Addr().AsSlice(), Mask: net.CIDRMask(route.To.Bits(), route.To.Addr().BitLen())},
	}
	if route.Via.IsValid() {
		kernel.Gw = route.Via.AsSlice()
	} else {
		kernel.Scope = netlink.SCOPE_LINK
	}
	return kernel
}

// Disconnect removes the machine's network namespace and its cable, if they exist.
func (n Network) Disconnect(machine topology.Machine) error {
	// Remove the cable first. The kernel removes a namespace with a delay, but the name of the cable must be free at once.
	handle, err := open(n.namespace(switchName))
	if err == nil {
		defer handle.Close()
		if link, err := handle.LinkByName(machine.Name); err == nil {
			if err := handle.LinkDel(link); err != nil {
				return fmt.Errorf("cannot remove the cable of %s: %w", machine.Name, err)
			}
		}
	}
	return removeNamespace(n.namespace(machine.Name))
}

// Unplug disables the machine's cable at the switch.
func (n Network) Unplug(machine topology.Machine) error { return n.set(machine, false) }

// Plug enables the machine's cable.
func (n Network) Plug(machine topology.Machine) error { return n.set(machine, true) }

func (n Network) set(machine topology.Machine, up bool) error {
	handle, err := open(n.namespace(switchName))
	if err != nil {
		return err
	}
	defer handle.Close()
	link, err := handle.LinkByName(machine.Name)
	if err != nil {
		return fmt.Errorf("cannot find the cable of %s: %w", machine.Name, err)
	}
	if up {
		err = handle.LinkSetUp(link)
	} else {
		err = handle.LinkSetDown(link)
	}
	if err != nil {
		return fmt.Errorf("cannot enable or disable the cable of %s: %w", machine.Name, err)
	}
	return nil
}

// Plugged reports whether the machine's cable is enabled.
func (n Network) Plugged(machine topology.Machine) bool {
	handle, err := open(n.namespace(switchName))
	if err != nil {
		return false
	}
	defer handle.Close()
	link, err := handle.LinkByName(machine.Name)
	return err == nil && link.Attrs().Flags&net.FlagUp != 0
}

// Remove removes all network namespaces of the cluster. It finds them by their names.
func (n Network) Remove() error {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list the network namespaces: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), n.prefix()) {
			err = errors.Join(err, removeNamespace(entry.Name()))
		}
	}
	_ = os.Remove(Dir) // Fails as long as there is another cluster.
	return err
}

// open returns a handle for a namespace without entering the namespace.
func open(name string) (*netlink.Handle, error) {
	network, err := netns.GetFromPath(filepath.Join(Dir, name))
	if err != nil {
		return nil, fmt.Errorf("cannot open the network namespace %s: %w", name, err)
	}
	defer network.Close()
	handle, err := netlink.NewHandleAt(network, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("cannot access the network namespace %s: %w", name, err)
	}
	return handle, nil
}

func createNamespace(name string) error {
	result := make(chan error)
	go func() {
		// The thread moves into the new namespace. It stays locked, so it exits with this goroutine, and no other goroutine
		// runs in the namespace.
		runtime.LockOSThread()
		result <- mountNewNamespace(filepath.Join(Dir, name))
	}()
	if err := <-result; err != nil {
		return fmt.Errorf("cannot create the network namespace %s: %w", name, err)
	}
	return nil
}

// mountNewNamespace moves the thread into a new network namespace and mounts the namespace on a new file, which keeps it alive.
func mountNewNamespace(path string) error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	file.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "bind", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

func removeNamespace(name string) error {
	file := filepath.Join(Dir, name)
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("cannot unmount the network namespace %s: %w", name, err)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the network namespace %s: %w", name, err)
	}
	return nil
}
