package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/pluginenv"
)

var apiServer = apiserver.New("../../config/crd/bases")

func TestMain(m *testing.M) { apiServer.Main(m) }

// env is a running API server with a namespace for one test.
type env struct{ *pluginenv.Env }

func newEnv(t *testing.T) *env {
	t.Helper()
	return &env{pluginenv.New(t, apiServer)}
}

// runCommand runs the command against the API server in the test's namespace. The
// output has the namespace bank in its place.
func (e *env) runCommand(t *testing.T, args ...string) result {
	t.Helper()
	got := runCommand(t, nil, append(args, "--kubeconfig", e.Kubeconfig, "-n", e.Namespace)...)
	got.stdout = strings.ReplaceAll(got.stdout, e.Namespace, "bank")
	got.stderr = strings.ReplaceAll(got.stderr, e.Namespace, "bank")
	return got
}

// startCommand runs a command until the test ends, and returns the lines of its output.
func (e *env) startCommand(t *testing.T, args ...string) (lines <-chan string) {
	t.Helper()
	from, to := io.Pipe()
	output := make(chan string, 100)
	root := newRoot()
	root.SetArgs(append(args, "--kubeconfig", e.Kubeconfig, "-n", e.Namespace))
	root.SetOut(to)
	var notes bytes.Buffer
	root.SetErr(&notes)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, root)
		to.Close()
	}()
	go readLines(from, output)
	t.Cleanup(func() {
		cancel()
		if status := <-ended; status != 0 {
			t.Errorf("%v: got exit status %d, %s, want 0", args, status, &notes)
		}
	})
	return output
}
