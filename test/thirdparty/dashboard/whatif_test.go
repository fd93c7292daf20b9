package dashboard

import (
	"fmt"

	"github.com/chromedp/chromedp"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// whatIf asks the simulator which member leads after crashes, and steps through the messages.
func whatIf(b *browser) {
	g := ledger("Bully", 4)
	g.Spec.Safety.LeaseMillis, g.Spec.Timing.HeartbeatMillis = 500, 100
	b.store.Replace([]v1.ElectionGroup{*g})
	b.open("#/bank/ledger")
	const card = `[data-section=\"whatif\"]`
	box := func(pod string) string { return fmt.Sprintf(`[data-section="whatif"] input[value="%s"]`, pod) }
	b.await(`document.querySelector("` + card + `")`)
	b.await(`[...document.querySelectorAll("` + card + ` input:checked")].map((e) => e.value).join() === "ledger-4"`)
	b.run("focus the button", chromedp.Focus(`[data-section="whatif"] .ask button`), chromedp.KeyEvent("\r"))
	b.await(`document.querySelector(".answer")?.innerText.includes("ledger-3 becomes the coordinator")`)
	b.click(box("ledger-3"))
	b.click(`[data-section="whatif"] .ask button`)
	b.await(`document.querySelector(".answer")?.innerText.includes("ledger-2 becomes the coordinator") && document.querySelectorAll(".message.lost").length > 0`)
	b.await(`document.querySelectorAll(".lifeline.down").length === 2`)
	b.click(`.steps button:nth-child(2)`)
	b.await(`document.querySelector(".caption").innerText.startsWith("1 of ") && document.querySelectorAll(".message.now").length === 1`)
	b.click(`.steps button:nth-child(2)`)
	b.await(`document.querySelector(".caption").innerText.startsWith("2 of ")`)
	for _, c := range []struct {
		width, height int64
		dark          bool
		name          string
	}{{390, 1000, true, "dashboard-what-if-phone.png"}, {1180, 1000, false, "dashboard-what-if.png"}} {
		b.device(c.width, c.height, c.dark)
		b.run("scroll to the card", chromedp.Evaluate(`document.querySelector("`+card+`").scrollIntoView()`, nil))
		b.accessible()
		b.screenshot(c.name)
	}
	b.device(1180, 860, false)

	b.t.Log("the answer stays while the status changes")
	changed := ledger("Bully", 3)
	changed.Spec.Safety.LeaseMillis, changed.Spec.Timing.HeartbeatMillis = 500, 100
	b.store.Set(changed)
	b.await(`document.querySelector("#coordinator").innerText === "ledger-3" && document.querySelector(".caption").innerText.startsWith("2 of ")`)
	b.click(box("ledger-2"))
	b.click(`[data-section="whatif"] .ask button`)
	b.await(`document.querySelector(".answer")?.innerText.includes("a coordinator needs a majority, 3 of 5 members, and only 2 are up") && !document.querySelector(".sequence")`)

	b.t.Log("a node fails, with all members on it")
	b.store.Set(placed(g, "node-3", "node-3", "node-2", "node-1", "node-1"))
	const choose = `(() => { const s = document.querySelector("#place"); s.value = "node/%s"; s.dispatchEvent(new Event("change")); })()`
	b.await(`document.querySelector("#place")?.innerText.includes("node-3: ledger-4, ledger-3")`)
	b.run("choose a node", chromedp.Evaluate(fmt.Sprintf(choose, "node-3"), nil))
	b.await(`document.querySelector(".answer")?.innerText.includes("ledger-2 becomes the coordinator") && document.querySelector(".answer").innerText.includes("up to 500 ms later")`)
	b.await(`[...document.querySelectorAll("` + card + ` input:checked")].length === 2`)
	b.accessible()
}
