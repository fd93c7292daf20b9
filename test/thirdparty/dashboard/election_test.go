package dashboard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	served "github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// lastElection kills the coordinator of real agents, and steps through the election that follows.
func lastElection(b *browser) {
	cluster, former := startAgents(b)
	survivors := slices.DeleteFunc(slices.Clone(cluster.Names()), func(name string) bool { return name == former })
	var reads atomic.Int32
	b.actions = &served.Actions{
		Key:            served.NewKey(),
		MayReachAgents: func(context.Context, *v1.ElectionGroup) (bool, error) { return true, nil },
		LastElection: func(ctx context.Context, _ *v1.ElectionGroup) (*transcript.Election, error) {
			reads.Add(1)
			all := journals(ctx, b, cluster, survivors)
			all[0].Waits = []control.Wait{{Term: slices.Max(transcript.Terms(all)), Connections: 14, LongestMicros: 9013}}
			return transcript.Merge(all, 0, transcript.Missing{Agent: former, Reason: "not found"}), nil
		},
		Connections: func(context.Context, *v1.ElectionGroup) []describe.Connections {
			return []describe.Connections{{Pod: survivors[0], Connections: &control.Connections{
				Open: 12, Waiting: 3, WaitedInVain: 4, Reset: 5, Refused: 6, FailedDials: 700,
			}}, {Pod: former, Missing: "not found"}}
		},
	}
	b.stop()
	b.serve()
	b.t.Cleanup(func() { b.actions = nil })
	if _, err := cluster.Agent(former).Kill(); err != nil {
		b.t.Fatal(err)
	}
	coordinator, err := cluster.AwaitCoordinator(b.t.Context(), survivors...)
	must.Succeed(b.t, err)
	leader, err := cluster.Leader(b.t.Context(), coordinator)
	must.Succeed(b.t, err)
	g := groupOf(cluster.Names(), coordinator)
	g.Status.Coordinator.Term = int64(leader.Term) //nolint:gosec // below 2^63
	g.Spec.Service = &v1.CoordinatorService{Via: v1.ViaAgents}
	b.store.Replace([]v1.ElectionGroup{*g})

	const card = `[data-section="election"]`
	b.run("forget the key", chromedp.Evaluate("sessionStorage.clear()", nil))
	b.open("#/bank/real")
	b.takeErrors() // of the connections that were open
	b.await(`document.querySelector('` + card + ` pre')?.innerText === "kubectl conclave explain real -n bank"`)
	b.open("#key=" + b.actions.Key)
	b.await(`location.hash === "" && document.querySelector(".row-link")`)
	b.click(".row-link")
	b.await(`document.querySelector('` + card + ` button')?.innerText.includes("Read")`)
	expect.Equalf(b.t, reads.Load(), 0, "reads of the journals before the user asked")
	b.run("press Enter", chromedp.Focus(card+" button"), chromedp.KeyEvent(kb.Enter))
	b.await(fmt.Sprintf(`document.querySelector('%s .answer').innerText.includes("%s was elected in term %d after %s")`,
		card, coordinator, leader.Term, former))
	b.await(`document.querySelectorAll('` + card + ` .lifeline').length === 3 && document.querySelectorAll('` + card +
		` .message.note').length > 0`)
	b.await(`document.querySelectorAll('` + card + ` .lifeline.down').length === 1 && document.querySelectorAll('` + card +
		` .message.lost').length > 0`)
	b.await(fmt.Sprintf(
		`document.querySelector('%s .milestones').innerText.includes("%s has the grants of a majority: its tenure begins")`,
		card, coordinator))
	b.await(
		fmt.Sprintf(`document.querySelector('%s .answer').innerText.includes("Missing: %s (not found).")`, card, former))
	b.await(`document.querySelector('` + card +
		` .answer').innerText.includes("Clients: 14 connections waited, the longest for 9.013 ms.")`)

	b.t.Log("step through it by the keyboard")
	// to Back and Next, after the choice to show probes if there are any
	for focused, i := "", 0; focused != "Next" && i < 3; i++ {
		b.run("press Tab", chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(`document.activeElement.innerText`, &focused))
	}
	b.await(`document.activeElement.innerText === "Next"`)
	caption := func(begins string) string {
		return fmt.Sprintf(`document.querySelector('%s .caption').innerText.startsWith(%q)`, card, begins)
	}
	b.run("press Enter", chromedp.KeyEvent(kb.Enter))
	b.await(caption("1 of ") + ` && document.querySelectorAll('` + card + ` .message.now').length === 1`)
	b.run("press the right arrow", chromedp.KeyEvent(kb.ArrowRight))
	b.await(caption("2 of "))
	b.run("press the left arrow", chromedp.KeyEvent(kb.ArrowLeft))
	b.await(caption("1 of "))
	b.run("press End", chromedp.KeyEvent(kb.End))
	b.await(`document.querySelectorAll('` + card + ` .later').length === 0`)
	for _, c := range []struct {
		width, height int64
		dark          bool
		name          string
	}{{390, 1000, true, "dashboard-last-election-phone.png"}, {1180, 1060, false, "dashboard-last-election.png"}} {
		b.device(c.width, c.height, c.dark)
		b.run("scroll to the card", chromedp.Evaluate(`document.querySelector('`+card+`').scrollIntoView()`, nil))
		b.accessible()
		b.screenshot(c.name)
	}
	b.device(1180, 860, false)

	const carried = `[data-section="connections"] `
	expect.Equalf(b.t, b.text(carried+"table"), "", "connections before the user asked")
	b.click(carried + "button")
	b.await(fmt.Sprintf(`[...document.querySelectorAll('%s tr')].map((row) => row.innerText.replaceAll(/\s+/g, " ")).join() === `+
		`"Agent Open Waiting Waited in vain Reset Refused Failed dials,%s 12 3 4 5 6 700,%s not found"`,
		carried, survivors[0], former))
	b.accessible()

	b.t.Log("a later election is announced, also if its coordinator is lost by now, and what was read stays")
	const notice = `document.querySelector('` + card + ` .notice')`
	b.await(notice + `.hidden`)
	vacant := g.DeepCopy()
	vacant.Status.Coordinator = nil
	vacant.Status.History = []v1.Tenure{{Pod: former, Term: g.Status.Coordinator.Term + 1, Until: new(metav1.NowMicro())}}
	b.store.Set(vacant)
	b.await(`!` + notice + `.hidden`)
	b.store.Set(g.DeepCopy())
	b.await(notice + `.hidden`)
	g = g.DeepCopy()
	g.Status.Coordinator.Term++
	b.store.Set(g)
	b.await(`!` + notice + `.hidden && document.querySelectorAll('` + card + ` .lifeline').length === 3`)
	expect.Equalf(b.t, reads.Load(), 1, "reads of the journals")
	electionsInFile(b, vacant, journals(b.t.Context(), b, cluster, survivors))
}

func journals(ctx context.Context, b *browser, cluster *agentcluster.Cluster, names []string) (all []journal.Journal) {
	for _, name := range names {
		j, err := cluster.Journal(ctx, name)
		expect.Succeed(b.t, err)
		all = append(all, j)
	}
	return all
}

// electionsInFile opens the file of explain --html, in which a hostile pod has written wherever it can.
func electionsInFile(b *browser, g *v1.ElectionGroup, all []journal.Journal) {
	b.t.Log("the elections in a file")
	const hostile = `</script></pre><script>window.intruder = true</script><img src=x ` +
		`onerror="window.intruder = true"><!--`
	g.Status.Processes[0].Message, g.Status.Processes[0].Node, all[0].Algorithm = hostile, hostile, hostile
	all[0].Members = append(all[0].Members, journal.Member{Name: hostile})
	f := served.File{Group: g, At: time.Now().Add(-time.Hour), Versions: "plugin " + hostile, Text: hostile +
		"\nfrom the text of explain"}
	for _, term := range slices.Backward(transcript.Terms(all)) {
		f.Elections = append(f.Elections, transcript.Merge(all, term, transcript.Missing{Agent: hostile, Reason: hostile}))
	}
	path := filepath.Join(b.t.TempDir(), "real.html")
	file, err := os.Create(filepath.Clean(path))
	if err == nil {
		err = errors.Join(f.Write(file), file.Close())
	}
	must.Succeed(b.t, err)
	b.run("open the file", chromedp.Navigate("file://"+path))
	b.await(
		fmt.Sprintf(`document.querySelectorAll(".election .sequence").length === %d && !window.intruder`, len(f.Elections)))
	b.await(`document.querySelector("h1").innerText === "bank/real" && ` +
		`document.querySelectorAll(".processes tbody th").length === 3`)
	b.await(`document.querySelector("details pre").textContent.startsWith("</script>") && ` +
		`document.querySelector("#versions").innerText.startsWith("plugin </script>")`)
	b.await(`!document.querySelector("script[src], link, img") && performance.getEntriesByType("resource").length === 0`)
	b.click(".steps button:last-child")
	b.await(`document.querySelector(".caption").innerText.startsWith("2 of ")`)
	b.click(".steps button:last-child")
	b.await(`document.querySelector(".steps button:last-child").innerText === "Play"`)
	b.device(1180, 860, true)
	b.accessible()
	b.run("print", emulation.SetEmulatedMedia().WithMedia("print").
		WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	b.await(`getComputedStyle(document.documentElement).getPropertyValue("--card") === "#fff"`) // Paper is white.
	b.await(`!document.querySelector(".steps").checkVisibility() && ` +
		`[...document.querySelectorAll(".sequence")].every((e) => e.scrollHeight <= e.clientHeight)`)
	b.device(1180, 860, false)
}
