package pod

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// run runs the agent as a process, with further environment variables.
func (g *testPod) run(binary string, environment ...string) *exec.Cmd {
	g.t.Helper()
	command := exec.CommandContext(context.Background(), binary, "pod", "--mounted", g.settings.MountDir, "--state",
		g.settings.StateDir)
	command.Env = append(environment,
		"POD_NAME="+g.name, "POD_NAMESPACE="+g.settings.Namespace, "POD_IP="+g.ip, "CONCLAVE_GROUPS=ledger,audit",
		"CONCLAVE_IDENTITY="+g.url,
		"CONCLAVE_CA="+string(g.ca.Cert),
		"CONCLAVE_API="+g.settings.API,
	)
	command.Stderr = g.log
	// The process must outlive the test's context, but not the test.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(g.t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	g.end = func() {
		g.end = func() {}
		expect.Succeed(g.t, command.Process.Signal(syscall.SIGTERM))
		if err := <-ended; err != nil {
			g.t.Errorf("%s: %v\n%s", g.name, err, g.log)
		}
	}
	return command
}

// buildAgent builds the agent's binary.
func buildAgent(t *testing.T) string {
	t.Helper()
	must.Succeed(t, program.DependOnProgram(t.Context(), "../../..", "./cmd/agent"))
	binary, err := agentcluster.Build(t.Context(), t.TempDir(), false)
	must.Succeed(t, err)
	return binary
}

// TestCommandElectsAndHandsOver runs the command as kubelet does, and ends it by SIGTERM.
func TestCommandElectsAndHandsOver(t *testing.T) {
	binary := buildAgent(t)
	c := newCluster(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		c.add(name)
	}
	first := c.document(1, "a", "b", "c", "d", "e")
	c.publish(first)
	streams, commands := map[string]*stream{}, map[string]*exec.Cmd{}
	for name, g := range c.pods {
		commands[name] = g.run(binary)
	}
	for name, g := range c.pods {
		streams[name] = g.watch()
	}
	for _, s := range streams {
		s.await("e is the coordinator", hasCoordinator("e"))
	}
	wantStatus(t, "leader of e", http.StatusOK)(c.pods["e"].callLocalAPI("/v1/groups/ledger/leader"))
	var lags []time.Duration
	for revision := range int64(20) {
		next := c.document(2+revision, "a", "b", "c", "d", "e")
		c.pods["a"].push(next)
		r := streams["a"].await("it has the revision", hasRevision(next.Revision))
		lags = append(lags, time.Since(r.ChangedAt))
	}
	slices.Sort(lags)
	t.Logf("delay of a report: median %s, maximum %s", lags[len(lags)/2], lags[len(lags)-1])
	for name, command := range commands {
		size := anonymousKiB(t, command.Process.Pid)
		t.Logf("%s uses %d KiB", name, size)
		expect.AtMostf(t, size, 7<<10, "KiB that %s uses", name)
	}
	testwait.Until(t, "another process is ready to take over", func() bool {
		status, _ := c.pods["e"].callOperatorAPI(c.operator, http.MethodPut,
			control.GroupPath("ledger")+control.EligibilityPath, `{"eligible":false}`)
		return status == http.StatusNoContent
	})
	streams["a"].await("d is the coordinator", hasCoordinator("d"))
	c.pods["d"].end()
	r := streams["a"].await("c is the coordinator", hasCoordinator("c"))
	if slices.ContainsFunc(r.Processes,
		func(row control.Row) bool { return row.Name == "d" && row.Status == "Coordinator" }) {
		t.Errorf("got %+v, want d not to be the coordinator", r)
	}
	if n := c.pods["d"].log.Count("level=ERROR"); n > 0 {
		t.Errorf("got errors in the log of d:\n%s", c.pods["d"].log)
	}
}

// anonymousKiB returns how much memory a process uses, without the pages of its program: the kernel decides how many of
// these are resident, and all agents of a node share them.
func anonymousKiB(t *testing.T, pid int) int {
	t.Helper()
	status := must.ReadFile(t, filepath.Join("/proc", strconv.Itoa(pid), "status"))
	found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindStringSubmatch(string(status))
	if found == nil {
		t.Fatal("cannot find RssAnon")
	}
	size, err := strconv.Atoi(found[1])
	must.Succeed(t, err)
	return size
}
