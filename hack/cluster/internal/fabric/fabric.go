// Package fabric is the network between the machines of one cluster: a switch, which is a bridge in a network namespace
// without processes, and a network namespace for each machine, connected to it by one cable (a veth pair). Pulling the
// cable's end at the switch is a real partition: packets vanish, and nobody is told.
package fabric

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
	netnsDir   = "/run/netns" // Where "ip netns" looks.
	bridgeName = "bridge"
	switchName = "switch"
	machineEnd = "eth0" // What a machine calls its end of the cable. The switch's end has the machine's name.
)

// Fabric is the network of one cluster.
type Fabric struct {
	Cluster string
}

func (f Fabric) prefix() string { return "conclave-" + f.Cluster + "." }

func (f Fabric) namespace(name string) string { return f.prefix() + name }

// Netns is the file of the machine's network namespace.
func (f Fabric) Netns(machine topology.Machine) string {
	return filepath.Join(netnsDir, f.namespace(machine.Name))
}

// MakeSwitch makes the switch, unless it's there.
func (f Fabric) MakeSwitch() error {
	name := f.namespace(switchName)
	if _, err := os.Stat(filepath.Join(netnsDir, name)); err == nil {
		return nil
	}
	if err := makeNamespace(name); err != nil {
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
		return fmt.Errorf("make a bridge: %w (the kernel needs CONFIG_BRIDGE)", err)
	}
	if err := handle.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("switch the bridge on: %w", err)
	}
	return nil
}

// Connect makes the machine's network anew, with its cable plugged in.
func (f Fabric) Connect(machine topology.Machine) error {
	if err := f.Disconnect(machine); err != nil {
		return err
	}
	name := f.namespace(machine.Name)
	if err := makeNamespace(name); err != nil {
		return err
	}
	network, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("open the network namespace %s: %w", name, err)
	}
	defer network.Close()
	if err := f.plug(machine, network); err != nil {
		return fmt.Errorf("connect %s to the switch: %w", machine.Name, err)
	}
	if err := configure(machine, network); err != nil {
		return fmt.Errorf("configure the network of %s: %w", machine.Name, err)
	}
	return nil
}

func (f Fabric) plug(machine topology.Machine, network netns.NsHandle) error {
	handle, err := open(f.namespace(switchName))
	if err != nil {
		return err
	}
	defer handle.Close()
	bridge, err := handle.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("find the bridge: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = machine.Name
	attributes.MasterIndex = bridge.Attrs().Index
	cable := &netlink.Veth{
		LinkAttrs: attributes, PeerName: machineEnd, PeerNamespace: netlink.NsFd(network), PeerHardwareAddr: machine.MAC(),
	}
	if err := handle.LinkAdd(cable); err != nil {
		return fmt.Errorf("make a cable: %w (the kernel needs CONFIG_VETH)", err)
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
		return fmt.Errorf("add the address %s: %w", machine.IP(), err)
	}
	if err := handle.LinkSetUp(link); err != nil {
		return err
	}
	for _, route := range machine.Routes() {
		if err := handle.RouteAdd(toKernel(route, link)); err != nil {
			return fmt.Errorf("add a route to %s: %w", route.To, err)
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

// Disconnect removes the machine's network, if it's there, and its cable.
func (f Fabric) Disconnect(machine topology.Machine) error {
	// The cable first: the kernel takes its time over a namespace, and the name at the switch must be free at once.
	handle, err := open(f.namespace(switchName))
	if err == nil {
		defer handle.Close()
		if link, err := handle.LinkByName(machine.Name); err == nil {
			if err := handle.LinkDel(link); err != nil {
				return fmt.Errorf("remove the cable of %s: %w", machine.Name, err)
			}
		}
	}
	return removeNamespace(f.namespace(machine.Name))
}

// Unplug pulls the machine's cable at the switch.
func (f Fabric) Unplug(machine topology.Machine) error { return f.set(machine, false) }

// Plug puts it back.
func (f Fabric) Plug(machine topology.Machine) error { return f.set(machine, true) }

func (f Fabric) set(machine topology.Machine, up bool) error {
	handle, err := open(f.namespace(switchName))
	if err != nil {
		return err
	}
	defer handle.Close()
	link, err := handle.LinkByName(machine.Name)
	if err != nil {
		return fmt.Errorf("find the cable of %s: %w", machine.Name, err)
	}
	if up {
		err = handle.LinkSetUp(link)
	} else {
		err = handle.LinkSetDown(link)
	}
	if err != nil {
		return fmt.Errorf("switch the cable of %s: %w", machine.Name, err)
	}
	return nil
}

// Plugged tells whether the machine's cable is plugged in.
func (f Fabric) Plugged(machine topology.Machine) bool {
	handle, err := open(f.namespace(switchName))
	if err != nil {
		return false
	}
	defer handle.Close()
	link, err := handle.LinkByName(machine.Name)
	return err == nil && link.Attrs().Flags&net.FlagUp != 0
}

// Remove removes every network namespace of the cluster, whichever they are.
func (f Fabric) Remove() error {
	entries, err := os.ReadDir(netnsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the network namespaces: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), f.prefix()) {
			err = errors.Join(err, removeNamespace(entry.Name()))
		}
	}
	return err
}

// open gives access to a namespace without entering it.
func open(name string) (*netlink.Handle, error) {
	network, err := netns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("open the network namespace %s: %w", name, err)
	}
	defer network.Close()
	handle, err := netlink.NewHandleAt(network, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("talk to the network namespace %s: %w", name, err)
	}
	return handle, nil
}

func makeNamespace(name string) error {
	result := make(chan error)
	go func() {
		// Making one puts the thread into it. The thread is never unlocked, so it ends with this goroutine, and nothing
		// else of the program ever runs in there.
		runtime.LockOSThread()
		network, err := netns.NewNamed(name)
		if err == nil {
			err = network.Close()
		}
		result <- err
	}()
	if err := <-result; err != nil {
		return fmt.Errorf("make the network namespace %s: %w", name, err)
	}
	return nil
}

func removeNamespace(name string) error {
	file := filepath.Join(netnsDir, name)
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount the network namespace %s: %w", name, err)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the network namespace %s: %w", name, err)
	}
	return nil
}
