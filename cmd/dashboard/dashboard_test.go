package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// visible returns the keys of the groups in the first event of the overview.
func (e *env) visible(from events) (keys []string) {
	e.t.Helper()
	got := e.next(from, "the groups")
	var groups []dashboard.Summary
	if err := json.Unmarshal([]byte(got.data), &groups); err != nil || got.kind != "groups" {
		e.t.Fatalf("got event %q: %v", got.kind, err)
	}
	for _, g := range groups {
		if g.Namespace == e.a || g.Namespace == e.b { // Other tests have others.
			keys = append(keys, g.Namespace+"/"+g.Name)
		}
	}
	return keys
}

func (e *env) expectVisible(what string, from events, want ...string) {
	e.t.Helper()
	if got := e.visible(from); !slices.Equal(got, want) {
		e.t.Errorf("%s: got groups %q, want %q", what, got, want)
	}
}

// TestUsersSeeTheirGroups: the API server decides which groups a user sees.
func TestUsersSeeTheirGroups(t *testing.T) {
	e := newEnv(t)
	e.start()
	alice, list, named, none := e.user("alice"), e.user("list"), e.user("named"), e.user("none")
	e.grant(alice, e.a, read)
	e.grant(list, e.b, []string{"list"})
	e.grant(named, e.b, []string{"get", "watch"}, "ledger")
	e.group(e.b, "other")

	b := e.browser()
	if got := b.login(e.token(alice)); got != http.StatusSeeOther {
		t.Fatalf("got status %d after the login, want a redirect to the page", got)
	}
	if got := b.get("/", nil); got.StatusCode != http.StatusOK {
		t.Errorf("got status %s for the page, want 200", got.Status)
	}
	e.expectVisible("alice, by cookie", b.open("/events", ""), e.a+"/ledger")
	for _, c := range []struct {
		who  *corev1.ServiceAccount
		want []string
	}{{alice, []string{e.a + "/ledger"}}, {list, nil}, {named, nil}, {none, nil}} {
		e.expectVisible(c.who.Name+", by bearer token", e.browser().open("/events", e.token(c.who)), c.want...)
	}
	for _, c := range []struct {
		who  *corev1.ServiceAccount
		key  string
		want bool
	}{
		{alice, e.a + "/ledger", true},
		{alice, e.b + "/ledger", false},
		{alice, e.a + "/nothing", false},
		{list, e.b + "/ledger", false},
		{named, e.b + "/ledger", true},
		{named, e.b + "/other", false},
		{none, e.a + "/ledger", false},
	} {
		got := e.next(e.browser().open("/events/"+c.key, e.token(c.who)), "the group")
		if shown := strings.Contains(got.data, `"name":"ledger"`); shown != c.want || !shown && got.data != "null" {
			t.Errorf("%s, %s: got %.100s, want the group: %t", c.who.Name, c.key, got.data, c.want)
		}
	}

	g := &v1.ElectionGroup{}
	must.Succeed(t, e.Get(t.Context(), client.ObjectKey{Namespace: e.a, Name: "ledger"}, g))
	g.Status = filledStatus(g)
	must.Succeed(t, e.Status().Update(t.Context(), g))
	question := "/what-if/" + e.a + "/ledger?micros=1000&down=ledger-4"
	testwait.Until(t, "the group is simulated", func() bool {
		return strings.Contains(b.get(question, nil).Text, "ledger-3 becomes the coordinator")
	})
	for who, want := range map[*corev1.ServiceAccount]int{named: http.StatusNotFound, none: http.StatusNotFound, alice: http.StatusOK} {
		if got := b.get(question, map[string]string{"Authorization": "Bearer " + e.token(who)}); got.StatusCode != want {
			t.Errorf("%s simulates the group: got status %s, want %d", who.Name, got.Status, want)
		}
	}
	if got := e.browser().get(question, nil); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("somebody without a token simulates the group: got status %s, want 401", got.Status)
	}

	t.Log("changes of groups of other namespaces aren't visible, either")
	stream := b.open("/events", "")
	e.visible(stream)
	e.group(e.b, "hidden")
	e.group(e.a, "shown")
	if got := e.next(stream, "the new group"); !strings.Contains(got.data, `"name":"shown"`) {
		t.Errorf("got event %v, want the new group of namespace a", got)
	}
}

// TestOtherTokensAreRefused: no token, and tokens that are not for the dashboard, see nothing.
func TestOtherTokensAreRefused(t *testing.T) {
	e := newEnv(t)
	e.start()
	alice, deleted := e.user("alice"), e.user("deleted")
	e.grant(alice, e.a, read)
	good, revoked := e.token(alice), e.token(deleted)
	must.Succeed(t, e.Delete(t.Context(), deleted))
	b := e.browser()
	if got := b.get("/", nil); got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != "/login" {
		t.Errorf("the page without a token: got status %s to %q, want a redirect to the login", got.Status, got.Header.Get("Location"))
	}
	for name, header := range map[string]string{
		"none":                 "",
		"another scheme":       "Basic " + good,
		"empty":                "Bearer ",
		"junk":                 "Bearer junk",
		"a forged signature":   "Bearer " + good[:len(good)-8] + "AAAAAAAA",
		"of a deleted account": "Bearer " + revoked,
		"for the API server":   "Bearer " + e.token(alice, "https://kubernetes.default.svc"),
		"for agents":           "Bearer " + e.token(alice, "conclave.dev"),
	} {
		headers := map[string]string{}
		if header != "" {
			headers["Authorization"] = header
		}
		for _, path := range []string{"/events", "/events/" + e.a + "/ledger"} {
			if got := b.get(path, headers); got.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s, %s: got status %s, want 401", name, path, got.Status)
			}
		}
		if token, ok := strings.CutPrefix(header, "Bearer "); ok && token != "" {
			if got := b.login(token); got != http.StatusUnauthorized {
				t.Errorf("login, %s: got status %d, want 401", name, got)
			}
		}
	}
	e.expectVisible("the good token", b.open("/events", good), e.a+"/ledger")
	for _, token := range []string{good, revoked} {
		if e.log.Contains(token) {
			t.Error("the log contains a token")
		}
	}
}

// TestRevokedRightsEndStreams: within a minute, a page shows only what its user may see now.
func TestRevokedRightsEndStreams(t *testing.T) {
	e := newEnv(t)
	e.start()
	alice, bob, carol := e.user("alice"), e.user("bob"), e.user("carol")
	binding := e.grant(alice, e.a, read)
	e.grant(bob, e.a, read)
	e.grant(carol, e.a, read)
	pages := map[string]*browser{}
	for _, who := range []*corev1.ServiceAccount{alice, bob, carol} {
		pages[who.Name] = e.browser()
		if got := pages[who.Name].login(e.token(who)); got != http.StatusSeeOther {
			t.Fatalf("got status %d after the login", got)
		}
	}
	group := "/events/" + e.a + "/ledger"
	overview, detail := pages["alice"].open("/events", ""), pages["alice"].open(group, "")
	ofBob, ofCarol := pages["bob"].open("/events", ""), pages["carol"].open(group, "")
	e.expectVisible("before", overview, e.a+"/ledger")

	if got := pages["carol"].send(http.MethodPost, "/logout", "", nil); got.StatusCode != http.StatusSeeOther {
		t.Errorf("got status %s after the logout, want a redirect", got.Status)
	}
	e.awaitEnd(ofCarol, "the stream after the logout")
	if got := pages["carol"].get("/events", nil); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the logout: got status %s, want 401", got.Status)
	}

	must.Succeed(t, e.Delete(t.Context(), binding))
	must.Succeed(t, e.Delete(t.Context(), bob))
	for what, stream := range map[string]events{"the overview": overview, "the group": detail, "a deleted account": ofBob} {
		if took := e.awaitEnd(stream, what); took > time.Minute {
			t.Errorf("%s: the stream ended after %s, want a minute at most", what, took)
		}
	}
	e.expectVisible("after", pages["alice"].open("/events", ""))
	if got := e.next(pages["alice"].open(group, ""), "the group"); got.data != "null" {
		t.Errorf("the group after its right was revoked: got %.100s, want null", got.data)
	}
	if got := pages["bob"].get("/events", nil); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("the deleted account: got status %s, want 401", got.Status)
	}
}
