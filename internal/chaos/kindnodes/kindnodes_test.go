//go:build linux

package kindnodes

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// runtimeOf puts a container runtime into PATH, which is this shell script.
func runtimeOf(t *testing.T, script string) *Nodes {
	t.Helper()
	path := filepath.Join(t.TempDir(), "docker")
	must.Succeed(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700)) //nolint:gosec // it must be executable
	return &Nodes{Runtime: path}
}

// place is a network namespace, with a socket there.
type place struct {
	pid  int
	conn net.PacketConn
}

// world is a node with a pod, and another machine. They are network namespaces of this machine.
type world struct {
	*Nodes

	t                *testing.T
	node, pod, other *place
	// id is that of the pod's container.
	id string
}

var (
	nodeNetwork  = Network{Node: "node"}
	nodeAddress  = "10.1.0.1"
	otherAddress = "10.1.0.2"
	podAddress   = "10.2.0.2"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	for _, name := range []string{"nft", "tc", "ip", "nsenter"} {
		if _, err := exec.LookPath(name); os.Geteuid() != 0 || err != nil {
			need.Skip(t, "root, nft and iproute2: it breaks network namespaces")
		}
	}
	w := &world{t: t, id: strings.Repeat("0f", 24) + fmt.Sprintf("%016x", os.Getpid())}
	w.node, w.pod, w.other = w.start(), w.start(), w.start()
	w.inCgroup(w.pod.pid, w.id)
	in := fmt.Sprintf("nsenter --target %d --net", w.node.pid)
	w.Nodes = runtimeOf(t, `[ "$1 $2" = "exec node" ] || exit 1; shift 2; exec `+in+` "$@"`)
	for _, command := range []string{
		fmt.Sprintf("ip link add eth0 type veth peer name eth0 netns %d", w.other.pid),
		fmt.Sprintf("ip link add veth0 type veth peer name eth0 netns %d", w.pod.pid),
		"ip address add " + nodeAddress + "/24 dev eth0", "ip link set eth0 up",
		"ip address add 10.2.0.1/24 dev veth0", "ip link set veth0 up",
		"sysctl -q -w net.ipv4.ip_forward=1",
	} {
		w.run(in + " " + command)
	}
	for address, other := range map[string]*place{otherAddress: w.other, podAddress: w.pod} {
		in := fmt.Sprintf("nsenter --target %d --net ", other.pid)
		w.run(in + "ip address add " + address + "/24 dev eth0")
		w.run(in + "ip link set eth0 up")
		w.run(in + "ip route add default via " + strings.TrimSuffix(address, "2") + "1")
	}
	w.listen(w.node, nodeAddress)
	w.listen(w.other, otherAddress)
	w.listen(w.pod, podAddress)
	return w
}

// start starts a process with a network of its own, which ends with the test.
func (w *world) start() *place {
	w.t.Helper()
	process := exec.Command("unshare", "--net", "sh", "-c", "echo; exec cat")
	in, err := process.StdinPipe() // It runs until its standard input is closed.
	must.Succeed(w.t, err)
	out, err := process.StdoutPipe()
	must.Succeed(w.t, err)
	must.Succeed(w.t, process.Start())
	w.t.Cleanup(func() { in.Close(); _ = process.Wait() })
	_, err = out.Read(make([]byte, 1)) // It has its network.
	must.Succeed(w.t, err)
	return &place{pid: process.Process.Pid}
}

// inCgroup moves a process to a cgroup whose name has the ID of its container.
func (w *world) inCgroup(pid int, id string) {
	w.t.Helper()
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil { // version 1
		root += "/pids"
	}
	folder := filepath.Join(root, "container-"+id+".scope")
	if err := os.Mkdir(folder, 0o755); err != nil {
		need.Skip(w.t, "cgroups: it makes containers")
	}
	w.t.Cleanup(func() {
		text := strconv.Itoa(pid)
		_ = os.WriteFile(root+"/cgroup.procs", []byte(text), 0o600) // It may have ended.
		must.Succeed(w.t, os.Remove(folder))
	})
	must.Succeed(w.t, os.WriteFile(folder+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0o600))
}

func (w *world) run(command string) {
	w.t.Helper()
	if output, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v: %s", command, err, output)
	}
}

func (w *world) listen(at *place, address string) {
	w.t.Helper()
	opened := make(chan net.PacketConn)
	var err error
	go func() {
		runtime.LockOSThread() // The goroutine doesn't unlock its thread, which therefore ends with it.
		var conn net.PacketConn
		var file *os.File
		if file, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", at.pid)); err == nil {
			defer file.Close()
			if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err == nil { //nolint:gosec // a file descriptor
				conn, err = (&net.ListenConfig{}).ListenPacket(w.t.Context(), "udp", address+":7")
			}
		}
		opened <- conn
	}()
	conn := <-opened
	must.Succeed(w.t, err)
	w.t.Cleanup(func() { conn.Close() })
	at.conn = conn
}

func (p *place) send(t *testing.T, to *place, text string) {
	t.Helper()
	_, err := p.conn.WriteTo([]byte(text), to.conn.LocalAddr())
	if !errors.Is(err, unix.EPERM) { // The kernel dropped it here.
		must.Succeed(t, err)
	}
}

func (p *place) receive(t *testing.T, limit time.Duration) string {
	t.Helper()
	must.Succeed(t, p.conn.SetReadDeadline(time.Now().Add(limit)))
	buffer := make([]byte, 100)
	n, _, err := p.conn.ReadFrom(buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:n])
}

// passes checks whether packets pass between two places, in one direction.
func (w *world) passes(what string, from, to *place, want bool) {
	w.t.Helper()
	limit := time.Minute
	if !want {
		limit = 100 * time.Millisecond
	}
	from.send(w.t, to, what)
	if got := to.receive(w.t, limit); (got == what) != want {
		w.t.Errorf("%s: got %q, want a packet: %t", what, got, want)
	}
}

func TestPacketsAreDropped(t *testing.T) {
	w := newWorld(t)
	ctx, pod := t.Context(), Network{Node: "node", Container: w.id}
	for _, c := range []struct {
		name    string
		in      Network
		packets Packets
		// pass has the links on which packets pass.
		pass string
	}{
		{"a node is cut off", nodeNetwork, Packets{}, "node>pod pod>node"},
		{"a node receives nothing", nodeNetwork, Packets{Direction: Received}, "node>other pod>other node>pod pod>node"},
		{"a node sends nothing", nodeNetwork, Packets{Direction: Sent}, "other>node other>pod node>pod pod>node"},
		{
			"a pod is cut off from a machine", pod,
			Packets{Addresses: []string{otherAddress}},
			"node>other other>node node>pod pod>node",
		},
		{"a pod receives nothing", pod, Packets{Direction: Received}, "node>other other>node pod>other pod>node"},
		{
			"a pod loses others", pod,
			Packets{Addresses: []string{"10.3.0.1", "fd00::1"}},
			"node>other other>node node>pod pod>node pod>other other>pod",
		},
	} {
		must.Succeed(t, w.Drop(ctx, c.in, c.packets))
		places := map[string]*place{"node": w.node, "pod": w.pod, "other": w.other}
		for _, from := range []string{"node", "pod", "other"} {
			for _, to := range []string{"node", "pod", "other"} {
				if from != to {
					link := from + ">" + to
					w.passes(c.name+": "+link, places[from], places[to], strings.Contains(c.pass, link))
				}
			}
		}
		if c.in == pod || c.packets.Direction == Sent { // The next case replaces the others.
			for range 2 {
				must.Succeed(t, w.Heal(ctx, c.in))
			}
			w.passes("healed", w.other, w.pod, true)
		}
	}
	must.Succeed(t, w.Drop(ctx, pod, Packets{Percent: 30}))
	const count = 200
	for range count {
		w.other.send(t, w.pod, "maybe")
	}
	must.Succeed(t, w.Heal(ctx, pod))
	w.other.send(t, w.pod, "end")
	received := 0
	for w.pod.receive(t, time.Minute) == "maybe" {
		received++
	}
	if received < count/2 || received > count*9/10 {
		t.Errorf("got %d of %d packets, want about 70 %%", received, count)
	}
}

// On a kernel without netem, the fault must be refused before it begins.
func TestPacketsAreDelayed(t *testing.T) {
	w := newWorld(t)
	ctx, pod := t.Context(), Network{Node: "node", Container: w.id}
	const delay = 100 * time.Millisecond
	missing := w.NotDelayed(ctx, "node")
	if err := w.Delay(ctx, pod, delay); (err == nil) != (missing == "") {
		t.Errorf("got %v, want an error only if this is a reason: %q", err, missing)
	}
	t.Logf("delays are possible unless this is a reason: %q", missing)
	if missing == "" {
		for _, ends := range [][2]*place{{w.other, w.pod}, {w.pod, w.other}} {
			began := time.Now()
			w.passes("delayed", ends[0], ends[1], true)
			expect.AtLeastf(t, time.Since(began), delay, "time until the packet")
		}
	}
	for range 2 {
		must.Succeed(t, w.EndDelay(ctx, pod))
	}
	w.passes("healed", w.other, w.pod, true)
}

func TestProcessesOfContainersGetSignals(t *testing.T) {
	w := newWorld(t)
	state := func() byte {
		text := must.ReadFile(t, fmt.Sprintf("/proc/%d/stat", w.pod.pid))
		return text[strings.LastIndexByte(string(text), ')')+2]
	}
	other, began := strings.Repeat("ab", 32), time.Now()
	w.Quiet = 10 * time.Millisecond
	must.Succeed(t, w.Signal(t.Context(), "node", "STOP", other, w.id))
	expect.AtLeastf(t, time.Since(began), 2*w.Quiet, "time of a signal")
	for state() != 'T' { // A signal is delivered soon, not at once.
		time.Sleep(time.Millisecond)
	}
	must.Succeed(t, w.Signal(t.Context(), "node", "CONT", w.id))
	for state() == 'T' {
		time.Sleep(time.Millisecond)
	}
	must.Succeed(t, w.Signal(t.Context(), "node", "KILL", w.id))
	for state() != 'Z' {
		time.Sleep(time.Millisecond)
	}
	for _, c := range []struct{ id, want string }{
		{other, "no process of the containers runs"},
		{"", `"" isn't the ID of a container`}, // It is a part of the names of all cgroups, so all processes would be killed.
	} {
		expect.ErrorContainsf(t, w.Signal(t.Context(), "node", "KILL", c.id), c.want, "%q", c.id)
	}
	err := w.Drop(t.Context(), Network{"node", other}, Packets{})
	expect.ErrorContainsf(t, err, "no process of the container runs", "no process")
}

// Docker assigns the lowest address that is free.
func TestNodesStartInTheOrderOfTheirAddresses(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	n := runtimeOf(t, `case $1 in
inspect) case $4 in a) echo 172.18.0.10 fd00::1 ;; b) echo 172.18.0.9 fd00::2 ;; esac ;;
*) echo "$*" >>`+calls+` ;;
esac`)
	must.Succeed(t, n.Kill(t.Context(), "a", "b"))
	must.Succeed(t, n.Start(t.Context(), "a", "b"))
	expect.Equalf(t, string(must.ReadFile(t, calls)), "kill a b\nstart b\nstart a\n", "calls")
}

func TestControlPlaneIsFoundByItsCluster(t *testing.T) {
	n := runtimeOf(t, `case $1 in
inspect) echo test ;;
ps) echo "$*" | grep -q cluster=test && printf 'test-control-plane\ntest-control-plane2\n' ;;
esac`)
	got, err := n.ControlPlane(t.Context(), "test-worker")
	if err != nil || strings.Join(got, " ") != "test-control-plane test-control-plane2" {
		t.Errorf("got %v, %v, want both nodes", got, err)
	}
	n = runtimeOf(t, `echo first; echo no such container >&2; exit 3`)
	_, err = n.ControlPlane(t.Context(), "test-worker")
	if err == nil || err.Error() != "docker: exit status 3: no such container" {
		t.Errorf("got %v, want the last line of the runtime's output", err)
	}
}
