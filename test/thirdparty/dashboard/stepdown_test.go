package dashboard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	served "github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// startAgents starts three real agents, and returns them with their coordinator.
func startAgents(b *browser) (cluster *agentcluster.Cluster, coordinator string) {
	b.t.Helper()
	folder := b.t.TempDir()
	binary := filepath.Join(folder, "conclave-agent")
	build := exec.CommandContext(b.t.Context(), "go", "build", "-trimpath", "-o", binary, "./cmd/agent")
	build.Dir, build.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		b.t.Fatalf("cannot build the agent: %v: %s", err, output)
	}
	cluster, err := agentcluster.New(b.t.Context(), agentcluster.Options{Binary: binary, Folder: folder, Agents: 3})
	must.Succeed(b.t, err)
	b.t.Cleanup(func() {
		expect.Succeed(b.t, cluster.Close())
	})
	must.Succeed(b.t, cluster.Start())
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	must.Succeed(b.t, cluster.AwaitConnected(ctx))
	if coordinator, err = cluster.AwaitCoordinator(ctx); err != nil {
		b.t.Fatal(err)
	}
	return cluster, coordinator
}

// groupOf returns a group of these members, the last of which has the highest priority.
func groupOf(members []string, coordinator string) *v1.ElectionGroup {
	g := named("bank", "real", ledger("StatusTable", len(members)-1))
	g.Status.Processes, g.Status.Coordinator, g.Status.History, g.Status.Protocol = nil, nil, nil, v1.ProtocolState{}
	for i := range g.Status.Conditions {
		if c := &g.Status.Conditions[i]; c.Type == string(v1.ConditionDegraded) {
			c.Status, c.Message = metav1.ConditionFalse, ""
		}
	}
	g.Status.Members, g.Status.ReadyMembers = new(int32(len(members))), new(int32(len(members)))
	for i, pod := range members {
		row := v1.Process{Pod: pod, Priority: int32(10 * (i + 1)), Status: v1.ProcessNormal}
		if pod == coordinator {
			row.Status, g.Status.Coordinator = v1.ProcessCoordinator,
				&v1.Coordinator{Pod: pod, Priority: row.Priority, Term: g.Status.Term, ElectedAt: metav1.NowMicro()}
		}
		g.Status.Processes = append(g.Status.Processes, row)
	}
	return g
}

// stepDown makes the coordinator of real agents hand over by the button.
func stepDown(b *browser) {
	cluster, coordinator := startAgents(b)
	may, requests := true, 0
	b.actions = &served.Actions{
		Key:            served.NewKey(),
		MayReachAgents: func(context.Context, *v1.ElectionGroup) (bool, error) { return may, nil },
		StepDown: func(ctx context.Context, g *v1.ElectionGroup, to string) (string, error) {
			requests++
			after, err := cluster.StepDown(ctx, g.Status.Coordinator.Pod, to)
			if err != nil {
				return "", errors.New("no member is ready to take over")
			}
			b.store.Set(groupOf(cluster.Names(), after.Coordinator))
			return after.Coordinator + " leads", nil
		},
	}
	b.stop()
	b.serve()
	b.t.Cleanup(func() { b.actions = nil })
	b.store.Replace([]v1.ElectionGroup{*groupOf(cluster.Names(), coordinator)})

	const button = ".title .button"
	b.open("#/bank/real")
	b.takeErrors() // of the connections that were open
	b.await(`document.querySelector("#coordinator")?.innerText === "` + coordinator + `"`)
	b.await(`document.querySelector("` + button + `").hidden`) // Without the key there is no button.
	b.open("#key=" + b.actions.Key)
	b.await(`location.hash === "" && document.querySelector(".row-link")`)
	b.click(".row-link")
	b.await(`document.querySelector("` + button + `")?.checkVisibility()`)

	b.t.Log("cancel by the keyboard")
	b.run("open the dialog", chromedp.Focus(button), chromedp.KeyEvent(kb.Enter))
	b.await(`document.querySelector("dialog[open]") && document.activeElement.id === "to"`)
	b.run("press Escape", chromedp.KeyEvent(kb.Escape))
	b.await(`!document.querySelector("dialog")`)
	expect.Equalf(b.t, requests, 0, "requests after Escape")

	to := cluster.Names()[0]
	b.click(button)
	b.run("select the next coordinator", chromedp.SetValue("#to", to))
	for _, dark := range []bool{true, false} {
		b.device(1180, 860, dark)
		b.accessible()
	}
	b.screenshot("dashboard-step-down.png")
	b.click("dialog .danger")
	b.await(`document.querySelector("dialog .outcome").innerText === "` + to + ` leads"`)
	b.await(`document.querySelector("#coordinator").innerText === "` + to + `"`)
	if now, err := cluster.AwaitCoordinator(b.t.Context()); err != nil || now != to {
		b.t.Errorf("got coordinator %s of the agents, %v, want %s", now, err, to)
	}
	b.click("dialog .choices button")
	b.await(`!document.querySelector("dialog")`)

	b.t.Log("a coordinator that has changed meanwhile stays")
	b.click(button)
	stale := groupOf(cluster.Names(), cluster.Names()[1])
	b.store.Set(stale)
	b.click("dialog .danger")
	b.await(`document.querySelector("dialog .outcome.bad")?.innerText.includes("the coordinator has changed since")`)
	expect.Equalf(b.t, requests, 1, "requests")
	for _, text := range b.takeErrors() {
		expect.Containsf(b.t, text, "409", "error on the console (only the status 409)")
	}
	may = false
	b.open("#/bank/real")
	b.await(`document.querySelector("#coordinator")`)
	b.await(fmt.Sprintf("document.querySelector(%q).hidden", button)) // The user may not do that any more.
}
