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

	"github.com/conclave-dev/conclave/internal/testing/program"
)

// binaryVariable and lackVariable carry what the outer process of Main found to
// the inner one.
const (
	binaryVariable = "CONCLAVE_TROUPE_BINARY"
	lackVariable   = "CONCLAVE_TROUPE_LACK"
)

// Main runs a package's tests, for its TestMain: it builds the agent, and starts
// the test program once more, in a network namespace of its own. Where there is
// none to be had, the tests run as they are, and those that need one are skipped.
//
// With CONCLAVE_RACE=true the agents look for data races.
func Main(m *testing.M) {
	if inOwnNetwork() {
		if err := furnish(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(unfurnished)
		}
		os.Exit(m.Run())
	}
	os.Exit(outer(m))
}

// unfurnished is the exit status of a test program that can't break its network.
const unfurnished = 97

func outer(m *testing.M) int {
	// The tests end with the thread that started them.
	runtime.LockOSThread()
	folder, err := os.MkdirTemp("", "troupe-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	binary, err := Build(context.Background(), folder, os.Getenv("CONCLAVE_RACE") == "true")
	if err == nil {
		err = os.Setenv(binaryVariable, binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status, err := runSeparately()
	if err == nil && status != unfurnished {
		return status
	}
	if err == nil {
		err = errors.New("see above")
	}
	if err := os.Setenv(lackVariable, err.Error()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// runSeparately runs this program in a network namespace of its own. Whoever
// ends this process means that one.
func runSeparately() (status int, err error) {
	executable, err := os.Executable()
	if err != nil {
		return 0, err
	}
	command := exec.CommandContext(context.Background(), executable, os.Args[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	Separate(command)
	if err := command.Start(); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			// It may have ended already; then Wait says so.
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

// NeedPartitions skips a test where packets can't be lost; in CI, it fails it.
func NeedPartitions(t testing.TB) {
	t.Helper()
	if inOwnNetwork() {
		return
	}
	lack := fmt.Sprintf("no network namespace of its own, as Main makes it: %s (it takes root or user namespaces, and nft: see hack/cluster/packages)", os.Getenv(lackVariable))
	if os.Getenv("CI") == "true" {
		t.Fatal(lack)
	}
	t.Skip(lack)
}

// relied has the test cache notice when the agent is another one. Main can't: the
// cache only knows what tests have looked at.
var relied = sync.OnceValue(func() error {
	top, err := moduleRoot()
	if err != nil {
		return err
	}
	return program.DependOnProgram(context.Background(), top, "./cmd/agent")
})

// Start makes a troupe that is gone when the test ends. If the test fails, it
// shows the end of the agents' logs. It needs Main.
func Start(t testing.TB, plan Options) *Cluster {
	t.Helper()
	plan.Binary = os.Getenv(binaryVariable)
	if plan.Binary == "" {
		t.Fatal("there is no agent to run: call troupe.Main in TestMain")
	}
	if err := relied(); err != nil {
		t.Fatal(err)
	}
	plan.Folder = t.TempDir()
	troupe, err := New(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := troupe.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			const lines = 40
			t.Log(troupe.Logs(lines))
		}
	})
	return troupe
}
