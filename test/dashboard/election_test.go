package dashboard

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	served "github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
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
			var journals []journal.Journal
			for _, name := range survivors {
				j, err := cluster.Journal(ctx, name)
				if err != nil {
					return nil, err
				}
				journals = append(journals, j)
			}
			return transcript.Merge(journals, 0, transcript.Missing{Agent: former, Reason: "not found"}), nil
		},
	}
	b.stop()
	b.serve(b.t)
	b.t.Cleanup(func() { b.actions = nil })
	if _, err := cluster.Agent(former).Kill(); err != nil {
		b.t.Fatal(err)
	}
	coordinator, err := cluster.AwaitCoordinator(b.t.Context(), survivors...)
	if err != nil {
		b.t.Fatal(err)
	}
	leader, err := cluster.Leader(b.t.Context(), coordinator)
	if err != nil {
		b.t.Fatal(err)
	}
	g := groupOf(cluster.Names(), coordinator)
	g.Status.Coordinator.Term = int64(leader.Term) //nolint:gosec // below 2^63
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
	if n := reads.Load(); n != 0 {
		b.t.Errorf("got %d reads of the journals before the user asked, want none", n)
	}
	b.run("press Enter", chromedp.Focus(card+" button"), chromedp.KeyEvent(kb.Enter))
	b.await(fmt.Sprintf(`document.querySelector('%s .answer').innerText.includes("%s was elected in term %d after %s")`, card, coordinator, leader.Term, former))
	b.await(`document.querySelectorAll('` + card + ` .lifeline').length === 3 && document.querySelectorAll('` + card + ` .message.note').length > 0`)
	b.await(`document.querySelectorAll('` + card + ` .lifeline.down').length === 1 && document.querySelectorAll('` + card + ` .message.lost').length > 0`)
	b.await(fmt.Sprintf(`document.querySelector('%s .milestones').innerText.includes("%s has the grants of a majority: its tenure begins")`, card, coordinator))
	b.await(fmt.Sprintf(`document.querySelector('%s .answer').innerText.includes("Missing: %s (not found).")`, card, former))

	b.t.Log("step through it by the keyboard")
	for range 2 {
		b.run("press Tab", chromedp.KeyEvent(kb.Tab)) // to Back and Next
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
	if n := reads.Load(); n != 1 {
		b.t.Errorf("got %d reads of the journals, want 1", n)
	}
}
