package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The program runs in a root folder that has nothing but itself, as the user that the image names: what a container
// runtime does with it, less the namespaces.
func TestRunsOnAnEmptyBase(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must run this as root: it changes the root folder")
		}
		t.Skip("not root: only root may change the root folder")
	}
	archive, _ := makeHello(t, ".")
	folder := t.TempDir()
	unpack(t, load(t, archive), folder)
	command := exec.CommandContext(t.Context(), "/hello")
	command.Env = []string{"NOTHING=inherited"}
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     folder,
		Credential: &syscall.Credential{Uid: 65532, Gid: 65532},
	}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if got, want := strings.TrimSpace(string(output)), "hello:test as 65532:65532"; got != want {
		t.Errorf("it says %q, not %q", got, want)
	}
}
