package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func readLines(from io.Reader, into chan<- string) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		into <- lines.Text()
	}
	close(into)
}

func TestStatusShowsGroups(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	e.CreateGroup(t, "mail")
	checkGolden(t, "status-one.txt", e.runCommand(t, "status", "ledger").stdout)
	checkGolden(t, "status-all.txt", e.runCommand(t, "status").stdout)
	allNamespaces := e.runCommand(t, "status", "-A")
	if !regexp.MustCompile(`bank/ledger +ledger-2 +10d `).MatchString(allNamespaces.stdout) || allNamespaces.status != 0 {
		t.Errorf("status -A: got\n%s%s", allNamespaces.stdout, allNamespaces.stderr)
	}
	checkGolden(t, "explain.txt", withoutDates(e.runCommand(t, "explain", "ledger").stdout))
}

var date = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}`)

func withoutDates(text string) string { return date.ReplaceAllString(text, "DATE") }

func TestStatusWithoutGroupsSucceeds(t *testing.T) {
	got := newEnv(t).runCommand(t, "status")
	if got.status != 0 || got.stdout != "" ||
		got.stderr != "No groups found in namespace bank; for those of all namespaces, use -A.\n" {
		t.Errorf("got %+v, want a note and exit status 0", got)
	}
}

func TestErrorOfTheAPIServerIsOneLine(t *testing.T) {
	e := newEnv(t)
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	other := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "elsewhere"}}
	other.Spec.Members = []v1.Member{{Pod: "mail-0", Priority: 1}}
	must.Succeed(t, e.Create(t.Context(), other))
	t.Cleanup(func() { _ = e.Delete(context.WithoutCancel(t.Context()), other) })
	asNobody := "--as=nobody@example.org"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"status": {
			[]string{"status", "absent"},
			"group absent not found in namespace bank; to list all groups, run: kubectl get electiongroups -A",
		},
		"explain": {
			[]string{"explain", "absent"},
			"group absent not found in namespace bank; to list all groups, run: kubectl get electiongroups -A",
		},
		"another namespace": {
			[]string{"status", "elsewhere"}, "group elsewhere not found in namespace bank (did you mean -n default?); to list " +
				"all groups, run: kubectl get electiongroups -A",
		},
		"not allowed": {[]string{"status", "ledger", asNobody}, `electiongroups.conclave.dev "ledger" is forbidden: ` +
			`User "nobody@example.org" ` +
			`cannot get resource "electiongroups" in API group "conclave.dev" in the namespace "bank"`},
		"no server": {
			[]string{"status", "--server", "http://127.0.0.1:1"},
			"cannot reach the API server: dial tcp 127.0.0.1:1: connect: connection refused",
		},
		"no context": {[]string{"status", "--context", "moon"}, `cannot select a cluster: context "moon" does not exist`},
		"no Conclave": {[]string{"status", "--server", empty.URL}, "this cluster has no ElectionGroups: " +
			"install Conclave first " +
			"(the server could not find the requested resource (get electiongroups.conclave.dev))"},
	} {
		t.Run(name, func(t *testing.T) {
			got := e.runCommand(t, test.args...)
			if got.status != 1 || got.stderr != "error: "+test.want+"\n" || got.stdout != "" {
				t.Errorf("%v: got exit status %d, stderr\n%swant 1,\nerror: %s\nstdout: got %q, want none", test.args, got.status,
					got.stderr, test.want, got.stdout)
			}
		})
	}
}
