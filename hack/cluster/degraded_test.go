package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// What is missing is said in one line.

func TestWithoutRoot(t *testing.T) {
	h := newHarness(t, "rootless")
	for _, verb := range []string{"up", "down", "load", "kill", "start", "partition", "heal"} {
		arguments := []string{verb, "--name", h.cluster}
		if verb != "up" && verb != "down" {
			arguments = append(arguments, "node-1")
		}
		command := h.command(arguments...)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		requireOneLine(t, command, verb+" needs root")
	}
}

func TestWithoutCgroups(t *testing.T) {
	h := newHarness(t, "groupless")
	script := `umount -R /sys/fs/cgroup && exec "$0" up --name "$1"`
	command := exec.Command("sh", "-c", script, h.tool, h.cluster)
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	requireOneLine(t, command, "no cgroups are mounted")
}

func TestWithoutCapabilities(t *testing.T) {
	h := newHarness(t, "powerless")
	// As root in a container that nobody gave privileges to.
	command := exec.Command("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", h.tool, "up", "--name", h.cluster)
	requireOneLine(t, command, "CAP_SYS_ADMIN")
}

// TestCheck: what a whole cluster needs is told before it's missed.
func TestCheck(t *testing.T) {
	h := newHarness(t, "checked")
	if said := h.run("check"); said != "" {
		t.Errorf("check said %q, though nothing is missing", said)
	}
	command := h.command("check")
	command.Env = append(command.Environ(), "PATH=/nowhere")
	requireOneLine(t, command, "apt-get install nftables")
	command = h.command("check")
	command.Env = append(command.Environ(), "PATH=/nowhere", "XDG_CACHE_HOME="+t.TempDir())
	requireOneLine(t, command, "needs the go command in PATH")
}

func TestUnknownMachine(t *testing.T) {
	h := newHarness(t, "nowhere")
	requireOneLine(t, h.command("kill", "node-1", "--name", h.cluster), "there is no such cluster: nowhere")
	requireOneLine(t, h.command("up", "--name", "Not_A_Name"), "lower-case letters")
	requireOneLine(t, h.command("up", "--nodes", "99", "--name", h.cluster), "0 to 32 nodes")
}

// TestWithoutServices: what only a part of the cluster needs is no reason to do without a cluster.
func TestWithoutServices(t *testing.T) {
	h := newHarness(t, "bare")
	before := takeInventory(t, "bare")
	command := h.command("up", "--nodes", "1", "--name", h.cluster)
	command.Env = append(command.Environ(), "PATH=/nowhere")
	_, said, err := output(command)
	if err != nil || !strings.Contains(said, "going on without Services by ClusterIP") || !strings.Contains(said, "apt-get install nftables") {
		t.Errorf("up without nft: %v\n%s", err, said)
	}
	if nodes := h.get("get", "nodes", "--no-headers"); strings.Count(nodes, " Ready ") != 1 {
		t.Errorf("the nodes are\n%s", nodes)
	}
	if said := h.on("up", "--nodes", "2"); !strings.Contains(said, "is up with 2 nodes") {
		t.Errorf("up with another node said %q", said)
	}
	h.on("down")
	requireSameInventory(t, before, takeInventory(t, "bare"))
}

func requireOneLine(t *testing.T, command *exec.Cmd, part string) {
	t.Helper()
	_, said, err := output(command)
	if err == nil || strings.Count(said, "\n") != 1 || !strings.Contains(said, part) {
		t.Errorf("%v: %v, said %q", command.Args, err, said)
	}
}
