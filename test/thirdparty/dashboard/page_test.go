package dashboard

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	served "github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestPage uses the page as users do. Its parts share one browser.
func TestPage(t *testing.T) {
	b := start(t)
	b.device(1180, 860, false)
	for _, part := range []struct {
		name string
		run  func(*browser)
	}{
		{"an empty cluster", emptyCluster},
		{"the overview", overview},
		{"a group is live", liveGroup},
		{"a ring", ring},
		{"a group is deleted and created again", deletedGroup},
		{"the API server is unreachable", lostConnection},
		{"the operator is down", silentOperator},
		{"the dashboard is stopped and started again", stoppedDashboard},
		{"the machine of the browser wakes up", wokenMachine},
		{"the clock of the browser is wrong", wrongClock},
		{"a thousand groups", thousandGroups},
		{"the nodes", nodes},
		{"a group flaps", flapping},
		{"the keyboard", keyboard},
		{"the policy blocks inline code", policy},
		{"the coordinator steps down", stepDown},
		{"the last election of real agents", lastElection},
	} {
		if !t.Run(part.name, func(t *testing.T) {
			b.t = t
			part.run(b)
			b.expectNoErrors()
		}) {
			break // The next part would fail for the same reason.
		}
	}
}

func emptyCluster(b *browser) {
	b.store.SetConnection(served.Connection{State: served.Lost, Error: "cannot reach the API server: connection refused"})
	b.open("#/bank/ledger")
	b.await(`document.querySelector("#banner").innerText.includes("connection refused")`)
	if got := b.text("main"); strings.Contains(got, "There is no group") {
		b.t.Errorf("before the groups have been read: got %q, want nothing about the group", got)
	}
	b.open("")
	b.await(`document.querySelector("#banner").innerText.includes("connection refused")`)
	if got := b.text("main"); strings.Contains(got, "no election groups") {
		b.t.Errorf("before the groups have been read: got %q, want nothing about groups", got)
	}
	b.store.SetConnection(served.Connection{State: served.Connected})
	b.await(`document.querySelector(".empty").innerText.includes("no election groups")`)
	b.await(`document.querySelector("#connection").innerText === "Live"`)
}

func overview(b *browser) {
	b.open("#/bank/%zz") // No group has such a name.
	b.store.Set(ledger("StatusTable", 3))
	b.store.Set(named("bank", "settlement", ledger("Bully", 4)))
	b.store.Set(named("shop", "checkout", ledger("RingSkip", -1)))
	b.store.Set(named("shop", "inventory", ledger("RingActiveList", 4)))
	b.store.Set(named("search", "indexer-of-all-documents-in-every-language", ledger("RingChampion", 4)))
	b.await(`document.querySelectorAll("tbody tr").length === 5`)
	b.await(`document.querySelector("tbody tr").innerText.includes("checkout")`) // the worst comes first
	expect.Equalf(b.t, b.text(`[data-key="bank/ledger"] .failovers`), "2", "failures in the last hour")
	b.accessible()
	b.screenshot("dashboard-overview.png")
	b.click(`th.name button`)
	b.await(`document.querySelector("tbody tr").innerText.includes("ledger") && ` +
		`document.querySelector("th.name").ariaSort === "ascending"`)
	b.click(`.chip.Healthy`)
	b.await(
		`document.querySelectorAll("tbody tr").length === 3 && document.querySelector("#count").innerText === "3 of 5"`)
	b.await(`location.hash === "#/?health=Healthy&sort=name"`)
	b.open("#/?health=Healthy&sort=-name") // as after a reload, or at a colleague's
	b.await(
		`document.querySelectorAll("tbody tr").length === 3 && document.querySelector("th.name").ariaSort === "descending"`)
	b.click(`.chip:first-child`)
	b.click(`th.health button`)
	b.run("select a namespace", chromedp.Evaluate(`(() => { const s = document.querySelector("#namespace"); s.value = `+
		`"shop"; s.dispatchEvent(new Event("change")); })()`, nil))
	b.await(`document.querySelectorAll("tbody tr").length === 2 && location.hash === "#/?namespace=shop"`)
	b.open("")
	b.device(390, 780, true)
	b.await(`document.querySelectorAll("tbody tr").length === 5`)
	b.accessible()
	b.screenshot("dashboard-overview-phone.png")
	b.device(1180, 860, false)
}

func liveGroup(b *browser) {
	b.store.Set(ledger("StatusTable", 4))
	b.open("#/bank/ledger")
	b.await(`document.querySelector("#coordinator")?.innerText === "ledger-4"`)
	b.await(`document.querySelector(".badge").innerText === "Healthy"`)
	b.store.Set(ledger("StatusTable", 3))
	b.await(`document.querySelector("#coordinator").innerText === "ledger-3"`)
	b.await(`document.querySelector(".badge").innerText === "Degraded"`)
	b.await(`document.querySelectorAll(".node.Crashed").length === 1 && ` +
		`document.querySelectorAll(".node.Coordinator").length === 1`)
	b.await(`document.querySelector("#announce").innerText === "ledger-3 is the coordinator of ledger"`)
	for selector, want := range map[string]string{
		".problems": "See why a member is down: kubectl describe pod ledger-4 -n bank",
		".timeline": "ledger-4 crashed, 4.8 ms without a coordinator",
		".facts":    "14th election", ".processes": "PodMissing: There is no pod with this name",
	} {
		if got := b.text(selector); !strings.Contains(got, want) {
			b.t.Errorf("%s: got %q, want %q in it", selector, got, want)
		}
	}
	for link, want := range map[string]string{
		".problems a":            "https://github.com/conclave-dev/conclave/blob/main/docs/runbooks/ConclaveAgentsMissing.md",
		"[data-section=links] a": "https://grafana.example.org/d/conclave-group?var-namespace=bank&var-group=ledger",
	} {
		b.await(fmt.Sprintf("document.querySelector(%q)?.href === %q", link, want))
	}
	b.await(`document.querySelector("[data-section=links] code").innerText === "kubectl events --for ` +
		`electiongroup/ledger -n bank"`)
	b.click(".problems .copy")
	b.await(`["Copied", "Selected"].includes(document.querySelector(".problems .copy").innerText)`) // by the permission
	b.await(`document.querySelector(".problems .copyable code").innerText === "kubectl describe pod ledger-4 -n bank"`)
	b.await(`document.querySelector(".problems .copy").innerText === "Copy"`)
	b.run("select nothing", chromedp.Evaluate(`getSelection().removeAllRanges()`, nil))
	for _, c := range []struct {
		width, height int64
		dark          bool
		name          string
	}{{1180, 1440, false, "dashboard-group.png"}, {1180, 1440, true, "dashboard-group-dark.png"}, {
		390, 1700, false, "dashboard-group-phone.png",
	}} {
		b.device(c.width, c.height, c.dark)
		b.accessible()
		b.screenshot(c.name)
	}
	b.device(1180, 860, false)
	b.store.Set(ledger("StatusTable", -1))
	b.await(`document.querySelector("#coordinator").innerText === "none"`)
}

func ring(b *browser) {
	b.store.Set(named("bank", "ring", ledger("RingSkip", 2)))
	b.open("#/bank/ring")
	b.await(
		`document.querySelectorAll(".edge.ring").length === 5 && document.querySelectorAll(".edge.ring.broken").length === 3`)
}

func deletedGroup(b *browser) {
	b.open("#/bank/ledger")
	b.await(`document.querySelector("#coordinator")`)
	b.store.Delete(ledger("StatusTable", 4))
	b.await(`document.querySelector(".notice").innerText.includes("was deleted")`)
	b.store.Set(ledger("StatusTable", 4))
	b.await(`document.querySelector(".notice").hidden && document.querySelector("#coordinator").innerText === "ledger-4"`)
	b.open("#/bank/nothing")
	b.await(`document.querySelector(".notice").innerText.includes("no group of this name")`)
}

func lostConnection(b *browser) {
	b.open("#/bank/ledger")
	b.await(`document.querySelector("#coordinator")`)
	b.store.SetConnection(served.Connection{State: served.Lost, Error: "cannot reach the API server: connection refused"})
	b.await(`document.querySelector("#banner").innerText.includes("connection refused") && ` +
		`!document.querySelector("#banner").hidden`)
	b.await(`document.querySelector("#coordinator").innerText === "ledger-4"`) // the last known state
	b.store.SetConnection(served.Connection{State: served.Connected})
	b.await(`document.querySelector("#banner").hidden && document.querySelector("#connection").innerText === "Live"`)
}

func silentOperator(b *browser) {
	b.store.SetSilentSince(time.Now().Add(-time.Minute))
	b.open("#/bank/ledger")
	b.await(`document.querySelector("#banner").innerText.startsWith("The operator has not shown that it runs since ")`)
	b.await(`/ Age: (\d+s|1m\d+s)\. Runbook$/.test(document.querySelector("#banner").innerText)`)
	b.await(`document.querySelector("#connection").innerText === "Stale"`)
	rules := must.ReadFile(b.t, "../../../config/prometheus/rules.yaml")
	var runbook string
	b.run("read the link", chromedp.Evaluate(`document.querySelector("#banner a").href`, &runbook))
	if !strings.Contains(string(rules), "runbook_url: "+runbook+"\n") {
		b.t.Errorf("got a link to %s, want the runbook of an alert", runbook)
	}
	b.accessible()
	b.store.SetConnection(served.Connection{State: served.Lost, Error: "cannot reach the API server: connection refused"})
	b.await(`document.querySelector("#banner").innerText.includes("connection refused")`) // the cause of both
	b.store.SetConnection(served.Connection{State: served.Connected})
	b.await(`document.querySelector("#connection").innerText === "Stale"`)
	b.store.SetSilentSince(time.Time{})
	b.await(`document.querySelector("#banner").hidden && document.querySelector("#connection").innerText === "Live"`)
}

func stoppedDashboard(b *browser) {
	b.open("#/bank/ledger")
	b.await(`document.querySelector("#coordinator")`)
	b.expectNoErrors()
	b.stop()
	b.await(`document.querySelector("#banner").innerText.includes("kubectl conclave dashboard")`)
	b.store.Set(ledger("StatusTable", 2))
	b.serve()
	b.await(`document.querySelector("#banner").hidden && document.querySelector("#coordinator").innerText === "ledger-2"`)
	for _, text := range b.takeErrors() {
		expect.Containsf(b.t, text, "net::ERR_", "error on the console (only those of the stopped server)")
	}
}

// wokenMachine lets more time pass than a stream may be silent. Nothing reports the connection as
// broken: the page has to notice, and to connect again.
func wokenMachine(b *browser) {
	b.open("#/bank/ledger")
	b.await(`document.querySelector("#coordinator")`)
	b.run("let time pass", chromedp.Evaluate(`(() => {
		const now = Date.now;
		let slept = 0;
		window.lostBefore = false;
		Date.now = () => now() + slept;
		setInterval(() => {
			if (!document.querySelector("#banner").hidden) window.lostBefore = true;
			if (!window.lostBefore) slept += 3600000; // An event may have arrived since.
		}, 100);
	})()`, nil))
	b.await(`window.lostBefore && document.querySelector("#banner").hidden`)
	b.store.Set(ledger("StatusTable", 3))
	b.await(`document.querySelector("#coordinator").innerText === "ledger-3"`)
}

// wrongClock: ages and what happened in the last hour don't depend on the clock of the browser.
func wrongClock(b *browser) {
	b.store.Set(ledger("StatusTable", 4)) // It was elected some minutes ago.
	var script page.ScriptIdentifier
	b.run("set the clock", chromedp.ActionFunc(func(ctx context.Context) (err error) {
		script, err = page.AddScriptToEvaluateOnNewDocument(
			`(() => { const now = Date.now; Date.now = () => now() + 3 * 3600000; })()`).Do(ctx)
		return err
	}))
	b.open("#/bank/ledger")
	b.await(`document.querySelector(".facts time")`)
	if got := b.text(".facts time"); strings.Contains(got, "h") {
		b.t.Errorf("got that the coordinator was elected %s, want some minutes ago", got)
	}
	b.open("")
	b.await(`document.querySelector('[data-key="bank/ledger"]')`)
	expect.Equalf(b.t, b.text(`[data-key="bank/ledger"] .failovers`), "2", "failures in the last hour")
	b.run("correct the clock", page.RemoveScriptToEvaluateOnNewDocument(script))
}

func thousandGroups(b *browser) {
	groups := make([]v1.ElectionGroup, 1000)
	for i := range groups {
		groups[i] = *named(fmt.Sprint("team-", i%20), fmt.Sprintf("group-%03d", i), ledger("StatusTable", 3+i%2))
	}
	b.open("")
	b.store.Replace(groups)
	b.await(
		`document.querySelectorAll("tbody tr").length === 1000 && document.querySelector("#count").innerText === "1000"`)
	b.run("filter", chromedp.SendKeys("#filter", "group-77"))
	b.await(
		`document.querySelectorAll("tbody tr").length === 10 && document.querySelector("#count").innerText === "10 of 1000"`)
	changed := named("team-11", "group-771", ledger("StatusTable", -1))
	b.store.Set(changed)
	b.await(`document.querySelector('[data-key="team-11/group-771"]').innerText.includes("Unavailable")`)
	b.store.Delete(changed)
	b.await(`document.querySelectorAll("tbody tr").length === 9`)
	b.run("filter", chromedp.SendKeys("#filter", "nothing"))
	b.await(`document.querySelector(".empty").innerText.includes("No group matches")`)
	b.click(".empty button")
	b.await(`document.querySelectorAll("tbody tr").length === 999`)
}

// nodes shows where members are: on the page of the nodes, by the filter, and on the page of a group.
func nodes(b *browser) {
	together := placed(ledger("StatusTable", 4), "node-3", "node-3", "node-3", "node-1", "node-2")
	b.store.Replace([]v1.ElectionGroup{
		*together, *named("shop", "checkout", placed(ledger("Bully", 4), "node-3", "node-1", "node-1", "node-2", "node-4")),
		*named("shop", "inventory", placed(ledger("Bully", 4), "node-4", "node-1", "node-2", "node-5", "node-6")),
	})
	b.open("")
	b.click(".aside")
	b.await(
		`document.querySelector("h1").innerText === "Nodes" && document.querySelectorAll(".nodes tbody tr").length === 6`)
	b.await(`document.querySelector(".nodes tbody tr").innerText.split("\t").join(" ") === "node-3 – 2 4 bank/ledger"`)
	for _, c := range []struct {
		width int64
		name  string
	}{{1180, "dashboard-nodes.png"}, {390, "dashboard-nodes-phone.png"}} {
		b.device(c.width, 480, false)
		b.accessible()
		b.screenshot(c.name)
	}
	b.device(1180, 860, false)
	lost := named("shop", "checkout", placed(ledger("Bully", 2), "node-3", "node-3", "node-1", "node-2", "node-4"))
	lost.Status.Processes[0].Zone, lost.Status.Processes[2].Zone = "west", "east"
	b.store.Set(lost)
	b.await(`document.querySelector("[data-node=node-3]").innerText.includes("1\t5\tbank/ledger")`)
	b.open("")
	b.run("filter", chromedp.SendKeys("#filter", "node-5"))
	b.await(`document.querySelectorAll("tbody tr").length === 1 && document.querySelector("tbody ` +
		`tr").innerText.includes("inventory")`)
	b.open("#/shop/checkout")
	b.await(`document.querySelector(".together")?.innerText === "Both members that are down are on node-3."`)
	for selector, want := range map[string]string{
		".problems": "kubectl describe node node-3", ".processes thead": "Node\tZone", ".processes tbody": "node-3\twest",
	} {
		if got := b.text(selector); !strings.Contains(got, want) {
			b.t.Errorf("%s: got %q, want %q in it", selector, got, want)
		}
	}
	b.open("#/nodes")
	// With two members down, each node of the others stops the group.
	b.await(`document.querySelectorAll(".nodes a").length > 3`)
	b.store.Delete(together)
	b.store.Delete(lost)
	b.await(`document.querySelectorAll(".nodes tbody tr").length === 5 && !document.querySelector(".nodes a")`)
	b.store.Replace(nil)
	b.await(`document.querySelector(".empty").innerText.includes("No member of a group")`)
}

// flapping shows a group that is up and has failed five times in ten minutes, until that is long enough ago.
func flapping(b *browser) {
	g := ledger("StatusTable", 4)
	g.Status.History = nil
	for i := range 5 {
		until := metav1.NewMicroTime(time.Now().Add(-time.Duration(i+1) * time.Minute))
		g.Status.History = append(g.Status.History, v1.Tenure{
			Number: int64(5 - i), Pod: "ledger-4", Term: int64(5 - i), From: until, Until: &until, EndReason: v1.EndLapse,
		})
	}
	b.store.Replace([]v1.ElectionGroup{*g})
	b.open("")
	b.await(`document.querySelector('[data-key="bank/ledger"] .badge')?.innerText === "Flapping" && ` +
		`document.querySelector(".chip.Flapping").innerText === "Flapping 1"`)
	b.accessible()
	b.open("#/bank/ledger")
	b.await(`document.querySelector(".badge")?.innerText === "Flapping" && ` +
		`document.querySelector(".problems")?.innerText.includes("Warning (Flapping): 5 tenures have ended by a failure")`)
}

// keyboard sorts the groups and opens one without a mouse.
func keyboard(b *browser) {
	b.store.Replace([]v1.ElectionGroup{*ledger("StatusTable", 4), *named("shop", "checkout", ledger("Bully", 4))})
	b.open("")
	b.await(`document.querySelectorAll("tbody tr").length === 2`)
	// chromedp sends the character apart from the key, so that the page couldn't prevent it.
	b.run("press /", chromedp.Evaluate(
		`document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true, cancelable: true }))`, nil))
	b.await(`document.activeElement.id === "filter"`)
	b.run("type", chromedp.KeyEvent("check"))
	b.await(`document.querySelectorAll("tbody tr").length === 1`)
	for range 20 {
		var focused string
		b.run("read the focus", chromedp.Evaluate(`document.activeElement.className`, &focused))
		if focused == "row-link" {
			break
		}
		b.run("press Tab", chromedp.KeyEvent(kb.Tab))
	}
	b.run("press Enter", chromedp.KeyEvent(kb.Enter))
	b.await(`document.querySelector("h1").innerText === "shop/checkout" && document.activeElement.id === "main"`)
	b.run("go back", chromedp.Evaluate("history.back()", nil))
	b.await(`document.querySelector("#filter")?.value === "check"`)
}

func policy(b *browser) {
	b.run("insert a script", chromedp.Evaluate(`(() => {
		const script = document.createElement("script");
		script.textContent = "window.intruder = true";
		document.body.append(script);
	})()`, nil))
	b.await(`window.intruder === undefined`)
	errors := b.takeErrors()
	if len(errors) != 1 || !strings.Contains(errors[0], "Content Security Policy") {
		b.t.Errorf("got %q on the console, want a violation of the policy", errors)
	}
}
