package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/chromedp/chromedp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	served "github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/dashboard/multiuser"
)

// reviews answers as an API server: the token "good" is that of alice, who may read the namespace
// bank. The tests of cmd/dashboard use a real one.
type reviews struct{ client.Client }

func (reviews) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	switch review := object.(type) {
	case *authenticationv1.TokenReview:
		review.Status.Authenticated = review.Spec.Token == "good"
		review.Status.User.Username, review.Status.Audiences = "alice@example.org", review.Spec.Audiences
	case *authorizationv1.SubjectAccessReview:
		review.Status.Allowed = review.Spec.User == "alice@example.org" && review.Spec.ResourceAttributes.Namespace == "bank"
	default:
		return fmt.Errorf("got a %T, want a review", object)
	}
	return nil
}

// readyForToken: the form is complete. While the browser replaces the page, it loses what a user types.
const readyForToken = `document.readyState === "complete" && document.activeElement.id === "token"`

// users logs in after a wrong token, sees the groups of one namespace, and logs out.
func users(b *browser) {
	b.open("") // Only a page of the site may clear its storage.
	b.run("forget the key of the local dashboard", chromedp.Evaluate("sessionStorage.clear()", nil))
	b.run("leave the page", chromedp.Navigate("about:blank"))
	b.stop()
	b.users = multiuser.New(multiuser.Options{
		Store: b.store, Client: reviews{}, Hosts: []string{"127.0.0.1"}, Audiences: []string{"dashboard.conclave.dev"}, Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	})
	b.serve(b.t)
	b.t.Cleanup(func() { b.users = nil })
	b.takeErrors() // of the connections that were open
	b.store.SetConnection(served.Connection{State: served.Connected})
	b.store.Replace([]v1.ElectionGroup{*ledger("StatusTable", 4), *named("shop", "checkout", ledger("Bully", 4))})

	b.open("#/bank/ledger")
	b.await(`document.title === "Log in · Conclave" && ` + readyForToken)
	for _, dark := range []bool{false, true} {
		b.device(390, 600, dark)
		b.accessible()
	}
	b.screenshot("dashboard-login.png")
	b.device(1180, 860, false)
	b.expectNoErrors()
	b.run("enter a wrong token", chromedp.SendKeys("#token", "wrong\n"))
	b.await(`document.querySelector("[role=alert]")?.innerText.includes("doesn't accept this token")`)
	b.accessible()
	for _, text := range b.takeErrors() {
		if !strings.Contains(text, "401") {
			b.t.Errorf("got error %s on the console, want only the status 401", text)
		}
	}
	b.await(readyForToken)
	b.run("enter the token", chromedp.SendKeys("#token", "good\n"))
	b.await(`document.querySelector("#coordinator")?.innerText === "ledger-4"`) // what the link named
	b.await(`document.querySelector('[data-section="election"] pre').innerText === "kubectl conclave explain ledger -n bank"`)
	b.await(`document.querySelector("#user").innerText.includes("alice@example.org")`)
	b.accessible()
	b.store.Delete(ledger("StatusTable", 4))
	b.await(`document.querySelector(".notice").innerText.includes("was deleted, or you may not see it any more, at")`)
	b.store.Set(ledger("StatusTable", 4))
	b.open("")
	b.await(`document.querySelectorAll("tbody tr").length === 1`)
	b.open("#/shop/checkout")
	b.await(`document.querySelector(".notice").innerText.includes("you may not see it")`)
	b.click("#user button")
	b.await(`document.title === "Log in · Conclave"`)
}
