package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Each missing requirement is reported in one line.

func TestCommandsFailWithoutRoot(t *testing.T) {
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

func TestUpFailsWithoutCgroups(t *testing.T) {
	h := newHarness(t, "groupless")
	script := `umount -R /sys/fs/cgroup && exec "$0" up --name "$1"`
	command := exec.Command("sh", "-c", script, h.tool, h.cluster)
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	requireOneLine(t, command, "no cgroups are mounted")
}

func TestUpFailsWithoutCapabilities(t *testing.T) {
	h := newHarness(t, "powerless")
	// Run as root in an unprivileged container.
	command := exec.Command("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", h.tool, "up", "--name", h.cluster)
	requireOneLine(t, command, "CAP_SYS_ADMIN")
}

func TestCheckReportsMissingTools(t *testing.T) {
	h := newHarness(t, "checked")
	if stdout := h.run("check"); stdout != "" {
		t.Errorf("got output %q, want none", stdout)
	}
	command := h.command("check")
	command.Env = append(command.Environ(), "PATH=/nowhere")
	requireOneLine(t, command, "apt-get install nftables")
	command = h.command("check")
	command.Env = append(command.Environ(), "PATH=/nowhere", "XDG_CACHE_HOME="+t.TempDir())
	requireOneLine(t, command, "needs the go command in PATH")
}

func TestInvalidNamesAndNumbersAreRejected(t *testing.T) {
	h := newHarness(t, "nowhere")
	requireOneLine(t, h.command("kill", "node-1", "--name", h.cluster), "no such cluster: nowhere")
	requireOneLine(t, h.command("up", "--name", "Not_A_Name"), "lower-case letters")
	requireOneLine(t, h.command("up", "--nodes", "99", "--name", h.cluster), "must be 0 to 32")
}

func TestUpFailsWithoutNftables(t *testing.T) {
	h := newHarness(t, "bare")
	before := takeInventory(t, "bare")
	command := h.command("up", "--name", h.cluster)
	command.Env = append(command.Environ(), "PATH=/nowhere")
	requireOneLine(t, command, "apt-get install nftables")
	h.on("down")
	requireSameInventory(t, before, takeInventory(t, "bare"))
}

func requireOneLine(t *testing.T, command *exec.Cmd, part string) {
	t.Helper()
	_, stderr, err := output(command)
	if err == nil || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, part) {
		t.Errorf("%v: got error %v and output %q, want one line that contains %q", command.Args, err, stderr, part)
	}
}
