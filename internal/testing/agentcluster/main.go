package agentcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/program"
)

// Main passes these environment variables to the test process: the path of the
// agent's binary, and the reason why partitions are impossible.
const (
	binaryVariable = "CONCLAVE_TEST_AGENT_BINARY"
	reasonVariable = "CONCLAVE_TEST_NO_PARTITIONS"
)

// Main implements TestMain for a package: it builds the agent and reruns the test binary in a network namespace of its
// own. Where that is impossible, the tests run in this process, and tests that need partitions are skipped.
//
// CONCLAVE_RACE=true builds the agents with the race detector.
func Main(m *testing.M) {
	if inOwnNetwork() {
		if err := SetUpNetwork(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitNoNetwork)
		}
		os.Exit(m.Run())
	}
	os.Exit(outer(m))
}

// Race reports whether the agents are built with the race detector. They need about ten times as much CPU time.
func Race() bool { return os.Getenv("CONCLAVE_RACE") == "true" }

// exitNoNetwork is the exit status of a test process that cannot set up its network namespace.
const exitNoNetwork = 97

func outer(m *testing.M) int {
	// The kernel kills the test process when the thread that started it ends.
	runtime.LockOSThread()
	folder, err := os.MkdirTemp("", "agentcluster-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	binary, err := Build(context.Background(), folder, Race())
	if err == nil {
		err = os.Setenv(binaryVariable, binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status, err := runSeparately()
	if err == nil && status != exitNoNetwork {
		return status
	}
	if err == nil {
		err = errors.New("see above")
	}
	if err := os.Setenv(reasonVariable, err.Error()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// runSeparately runs this program in a network namespace of its own and forwards signals to it.
func runSeparately() (status int, err error) {
	executable, err := os.Executable()
	if err != nil {
		return 0, err
	}
	command := exec.CommandContext(context.Background(), executable, os.Args[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	InOwnNetwork(command)
	if err := command.Start(); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			// If the process has already ended, Wait reports that.
			_ = command.Process.Signal(s)
		}
	}()
	err = command.Wait()
	signal.Stop(signals)
	close(signals)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if status = command.ProcessState.ExitCode(); status < 0 {
		status = 1
	}
	return status, nil
}

// NeedPartitions skips a test where packets cannot be dropped. In CI it fails the test.
func NeedPartitions(t testing.TB) {
	t.Helper()
	if inOwnNetwork() {
		return
	}
	need.Skip(t, fmt.Sprintf("a network namespace: root or user namespaces, and nft (see hack/packages): %s",
		os.Getenv(reasonVariable)))
}

// dependOnAgent makes the test cache track the agent's sources. Main can't do that:
// the cache tracks only files that tests open.
var dependOnAgent = sync.OnceValue(func() error {
	top, err := moduleRoot()
	if err != nil {
		return err
	}
	return program.DependOnProgram(context.Background(), top, "./cmd/agent")
})

// Binary returns the path of the agent that Main has built. The package's TestMain must call Main.
func Binary(t testing.TB) string {
	t.Helper()
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		t.Fatal("there is no agent binary: call agentcluster.Main in TestMain")
	}
	must.Succeed(t, dependOnAgent())
	return binary
}

// Start returns a Cluster that is closed when the test ends. Then the elections are checked against the model. If the
// test fails, Start logs the last lines of the agents' logs. The package's TestMain must call Main.
func Start(t testing.TB, options Options) *Cluster {
	t.Helper()
	options.Binary = Binary(t)
	options.Folder = t.TempDir()
	_, isTest := t.(*testing.T)
	options.traced = isTest && !options.Untraced
	cluster, err := New(t.Context(), options)
	must.Succeed(t, err)
	t.Cleanup(func() {
		expect.Succeed(t, cluster.Close())
		expect.Succeed(t, cluster.checkModel())
		if t.Failed() {
			const lines = 40
			t.Log(cluster.Logs(lines))
		}
	})
	return cluster
}
