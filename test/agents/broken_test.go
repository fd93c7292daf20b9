package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// soon is the deadline of all that a test waits for.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// three are agents that keep a coordinator that is well.
func three(t *testing.T) *agentcluster.Cluster {
	t.Helper()
	return agentcluster.Start(t, agentcluster.Options{Agents: 3, TLS: true, Group: agentcluster.Group{
		Safety: &agentcluster.Safety{Mode: "Majority", LeaseMillis: leaseMillis}, Preemption: &agentcluster.Preemption{Policy: "Never"}, Timing: &timing,
	}})
}

// TestACoordinatorThatWasStoppedKnowsThatItsTenureIsOver: whoever asked while it
// was stopped is answered as soon as it goes on, and before it has heard of
// anybody else.
func TestACoordinatorThatWasStoppedKnowsThatItsTenureIsOver(t *testing.T) {
	ctx, agents := soon(t), three(t)
	if err := agents.Start(); err != nil {
		t.Fatal(err)
	}
	former, err := agents.AwaitCoordinator(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before, err := agents.Leader(ctx, former)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agents.Agent(former).Stop(); err != nil {
		t.Fatal(err)
	}
	var others []string
	for _, name := range agents.Names() {
		if name != former {
			others = append(others, name)
		}
	}
	var asking sync.WaitGroup
	answers := make(chan group.Leader, 20)
	for range cap(answers) {
		asking.Go(func() {
			answer, err := agents.Leader(ctx, former)
			if err != nil {
				t.Error(err)
			}
			answers <- answer
		})
	}
	next, err := agents.AwaitCoordinator(ctx, others...)
	if err != nil {
		t.Fatal(err)
	}
	after, err := agents.Leader(ctx, next)
	if err != nil {
		t.Fatal(err)
	}
	if err := agents.Agent(former).Continue(); err != nil {
		t.Fatal(err)
	}
	asking.Wait()
	close(answers)
	for answer := range answers {
		if answer.Leading || answer.Token != 0 {
			t.Errorf("%s, which led in term %d, says %+v, and %s leads", former, before.Term, answer, next)
		}
	}
	if again, err := agents.AwaitCoordinator(ctx); err != nil || again != next {
		t.Errorf("all follow %q, %v, and not %s", again, err, next)
	}
	if after.Token <= before.Token {
		t.Errorf("the token was %d and is %d", before.Token, after.Token)
	}
}

// smallDisk is a file system of one page, and a way to make it larger. It takes
// root; in CI, it must be there.
func smallDisk(t *testing.T) (folder string, enlarge func()) {
	t.Helper()
	folder = t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size="+fmt.Sprint(os.Getpagesize())); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must not skip tests: mount a small file system: %v", err)
		}
		t.Skipf("there is no small file system to be had: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return folder, func() {
		if err := unix.Mount("tmpfs", folder, "tmpfs", unix.MS_REMOUNT, "size=1m"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAListThatCannotBeKeptIsAdoptedAsSoonAsItCan: nobody touches the file again.
func TestAListThatCannotBeKeptIsAdoptedAsSoonAsItCan(t *testing.T) {
	folder, enlarge := smallDisk(t)
	ctx, agents := soon(t), three(t)
	if err := agents.WriteConfig("a", func(f *agentcluster.File) { f.State = folder }); err != nil {
		t.Fatal(err)
	}
	if err := agents.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := agents.AwaitCoordinator(ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range agents.Names() {
		if err := agents.WriteConfig(name, func(f *agentcluster.File) {
			f.Groups[0].Version = 2
			f.Groups[0].Members[0].Priority++
		}); err != nil {
			t.Fatal(err)
		}
	}
	complaint := syscall.ENOSPC.Error()
	if err := agentcluster.Await(ctx, func(ctx context.Context) error {
		if said, err := ready(ctx, agents, "a"); err != nil || !strings.Contains(said, complaint) {
			return fmt.Errorf("a says that it is %q, %w", said, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "c"} {
		awaitVersion(t, agents, name, 2)
	}
	if status, err := agents.Status(ctx, "a"); err != nil || status.Version != 1 {
		t.Errorf("a goes by version %d, %v", status.Version, err)
	}
	if _, err := agents.AwaitCoordinator(ctx); err != nil {
		t.Error(err)
	}
	enlarge()
	awaitVersion(t, agents, "a", 2)
	if err := agentcluster.Await(ctx, func(ctx context.Context) error {
		if said, err := ready(ctx, agents, "a"); err != nil || said != "ok" {
			return fmt.Errorf("a says that it is %q, %w", said, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	// It is on the disk, too.
	if err := agents.Restart("a"); err != nil {
		t.Fatal(err)
	}
	awaitVersion(t, agents, "a", 2)
	if _, err := agents.AwaitCoordinator(ctx); err != nil {
		t.Error(err)
	}
}

func awaitVersion(t *testing.T, agents *agentcluster.Cluster, name string, version uint32) {
	t.Helper()
	if err := agentcluster.Await(soon(t), func(ctx context.Context) error {
		status, err := agents.Status(ctx, name)
		if err == nil && status.Version != version {
			err = fmt.Errorf("%s goes by version %d", name, status.Version)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// ready asks an agent whether it is ready.
func ready(ctx context.Context, agents *agentcluster.Cluster, name string) (string, error) {
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
