package transport_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestRejectionProvesNoEnd: a firewall refuses a connection by ICMP in the place of a process that listens. The test
// runs again in a network namespace, because packets of other tests must not be rejected.
func TestRejectionProvesNoEnd(t *testing.T) {
	const inner = "CONCLAVE_TEST_REJECTION"
	if os.Getenv(inner) != "" {
		testRejection(t)
		return
	}
	t.Parallel()
	runtime.LockOSThread() // The kernel kills the process when this thread ends.
	defer runtime.UnlockOSThread()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestRejectionProvesNoEnd$", "-test.v")
	command.Env = append(os.Environ(), inner+"=1")
	agentcluster.InOwnNetwork(command)
	output, err := command.CombinedOutput()
	var exited *exec.ExitError
	switch {
	case errors.As(err, &exited):
		t.Errorf("%s\n%s", err, output)
	case err != nil || bytes.Contains(output, []byte("--- SKIP")):
		need.Skip(t, fmt.Sprintf("a network namespace: root or user namespaces, and nft (see hack/packages): %v %s", err, output))
	}
}

func testRejection(t *testing.T) {
	if err := agentcluster.SetUpNetwork(t.Context()); err != nil {
		t.Skip(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = listener.Close() }()
	rules := exec.CommandContext(t.Context(), "nft", "-f", "-")
	rules.Stdin = strings.NewReader("table ip rejection {\nchain input {\ntype filter hook input priority 0; tcp flags & (syn | ack) == syn reject;\n}\n}\n")
	if output, err := rules.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%s", err, output)
	}
	// The kernel considers an ICMP message while it sends a packet only after a second, with the next packet.
	if transport.Refuses(listener, listener.Addr().String(), testwait.Limit) {
		t.Error("got a refusal, which would prove the end of the process")
	}
}
