package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// testContext returns a context that limits the waits of a test.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newCluster returns three agents without preemption. The timeouts are so long that a
// coordinator keeps its office on a busy machine.
func newCluster(t *testing.T) *agentcluster.Cluster {
	t.Helper()
	return agentcluster.Start(t, agentcluster.Options{Agents: 3, TLS: true, Group: agentcluster.Group{
		Safety: &agentcluster.Safety{Mode: "Majority", LeaseMillis: 4000}, Preemption: &agentcluster.Preemption{Policy: "Never"},
		Timing: &agentcluster.Timing{HeartbeatMillis: 100, PatienceMillis: 3000, DrainMillis: 300},
	}})
}

// smallDisk mounts a file system of one page, and returns a function that enlarges it. It
// requires root. Without root, the test is skipped, except in CI.
func smallDisk(t *testing.T) (folder string, enlarge func()) {
	t.Helper()
	folder = t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size="+fmt.Sprint(os.Getpagesize())); err != nil {
		need.Skip(t, fmt.Sprintf("root: it mounts a file system: %v", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return folder, func() {
		must.Succeed(t, unix.Mount("tmpfs", folder, "tmpfs", unix.MS_REMOUNT, "size=1m"))
	}
}

// TestMemberListIsAdoptedWhenItCanBeStored: an agent whose disk is full adopts a member list
// as soon as there is space, without another change to its configuration. It can be restarted
// meanwhile.
func TestMemberListIsAdoptedWhenItCanBeStored(t *testing.T) {
	t.Parallel()
	folder, enlarge := smallDisk(t)
	ctx, agents := testContext(t), newCluster(t)
	must.Succeed(t, agents.WriteConfig("a", func(f *agentcluster.File) { f.State = folder }))
	must.Succeed(t, agents.Start())
	if _, err := agents.AwaitCoordinator(ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range agents.Names() {
		must.Succeed(t, agents.WriteConfig(name, func(f *agentcluster.File) {
			f.Groups[0].Version = 2
			f.Groups[0].Members[0].Priority++
		}))
	}
	message := syscall.ENOSPC.Error()
	must.Succeed(t, agentcluster.Await(ctx, func(ctx context.Context) error {
		if state, err := readiness(ctx, agents, "a"); err != nil || !strings.Contains(state, message) {
			return fmt.Errorf("got readiness %q of a: %w", state, err)
		}
		return nil
	}))
	for _, name := range []string{"b", "c"} {
		awaitVersion(t, agents, name, 2)
	}
	if status, err := agents.Status(ctx, "a"); err != nil || status.Version != 1 {
		t.Errorf("got version %d of a and error %v, want version 1", status.Version, err)
	}
	if _, err := agents.AwaitCoordinator(ctx); err != nil {
		t.Error(err)
	}
	// It starts again with the list and the lease that it has stored.
	if err := agents.WriteConfig("a", func(f *agentcluster.File) {
		f.Groups[0].Safety = &agentcluster.Safety{Mode: "Majority", LeaseMillis: 8000}
	}); err != nil {
		t.Fatal(err)
	}
	if err := agents.Restart("a"); err != nil {
		t.Fatal(err)
	}
	awaitVersion(t, agents, "a", 1)
	if state, err := readiness(ctx, agents, "a"); err != nil || !strings.Contains(state, message) {
		t.Errorf("got readiness %q of the restarted agent, %v", state, err)
	}
	if _, err := agents.AwaitCoordinator(ctx); err != nil {
		t.Error(err)
	}
	enlarge()
	awaitVersion(t, agents, "a", 2)
	if err := agentcluster.Await(ctx, func(ctx context.Context) error {
		if state, err := readiness(ctx, agents, "a"); err != nil || state != "ok" {
			return fmt.Errorf("got readiness %q of a: %w", state, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	// The agent has stored the list.
	must.Succeed(t, agents.Restart("a"))
	awaitVersion(t, agents, "a", 2)
	if _, err := agents.AwaitCoordinator(ctx); err != nil {
		t.Error(err)
	}
}

func awaitVersion(t *testing.T, agents *agentcluster.Cluster, name string, version uint32) {
	t.Helper()
	must.Succeed(t, agentcluster.Await(testContext(t), func(ctx context.Context) error {
		status, err := agents.Status(ctx, name)
		if err == nil && status.Version != version {
			err = fmt.Errorf("got version %d of %s, want %d", status.Version, name, version)
		}
		return err
	}))
}

// readiness returns the response of an agent's readiness endpoint.
func readiness(ctx context.Context, agents *agentcluster.Cluster, name string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+agents.Agent(name).API+"/readyz", nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return strings.TrimSpace(string(body)), errors.Join(err)
}
