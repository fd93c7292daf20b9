package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// The program runs in a root directory without other files, as the user of the image. That is what a container runtime
// does, except for the namespaces.
func TestRunsWithoutOtherFiles(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("got another user than root in CI, want root: the test changes the root directory")
		}
		t.Skip("only root may change the root directory")
	}
	archive, _ := makeHello(t, ".")
	root := t.TempDir()
	unpack(t, load(t, archive), root)
	command := exec.CommandContext(t.Context(), "/hello")
	command.Env = []string{"NOTHING=inherited"}
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     root,
		Credential: &syscall.Credential{Uid: 65532, Gid: 65532},
	}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	expect.Equalf(t, strings.TrimSpace(string(output)), "hello:test as 65532:65532", "output")
}
