package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

func split(from io.Reader, into chan<- string) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		into <- lines.Text()
	}
	close(into)
}

func TestStatusShowsGroupsOfARealServer(t *testing.T) {
	s := connect(t)
	s.group(t, "ledger")
	s.group(t, "mail")
	golden(t, "status-one.txt", s.conclave(t, "status", "ledger").out)
	golden(t, "status-all.txt", s.conclave(t, "status").out)
	elsewhere := s.conclave(t, "status", "-A")
	if !strings.Contains(elsewhere.out, "bank/ledger: ledger-2 leads in term 100, for 10d") || elsewhere.status != 0 {
		t.Errorf("status -A says\n%s%s", elsewhere.out, elsewhere.err)
	}
	golden(t, "explain.txt", withoutDates(s.conclave(t, "explain", "ledger").out))
}

var date = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}`)

func withoutDates(text string) string { return date.ReplaceAllString(text, "DATE") }

func TestStatusWritesObjectsForPrograms(t *testing.T) {
	s := connect(t)
	s.group(t, "ledger")
	s.group(t, "mail")
	for _, output := range []string{"json", "yaml"} {
		var one v1.ElectionGroup
		if err := yaml.UnmarshalStrict([]byte(s.conclave(t, "status", "ledger", "-o", output).out), &one); err != nil {
			t.Fatal(err)
		}
		if one.Kind != "ElectionGroup" || one.APIVersion != "conclave.dev/v1" || one.Status.Coordinator.Pod != "ledger-2" {
			t.Errorf("-o %s of one group is %+v", output, one)
		}
		var all v1.ElectionGroupList
		if err := yaml.UnmarshalStrict([]byte(s.conclave(t, "status", "-o", output).out), &all); err != nil {
			t.Fatal(err)
		}
		if all.Kind != "List" || len(all.Items) != 2 || all.Items[1].Name != "mail" || all.Items[1].Kind != "ElectionGroup" {
			t.Errorf("-o %s of all groups is %+v", output, all)
		}
	}
}

func TestNoGroupsAreNoError(t *testing.T) {
	got := connect(t).conclave(t, "status")
	if got.status != 0 || got.out != "" || got.err != "No groups found.\n" {
		t.Errorf("status without groups is %+v", got)
	}
}

func TestGroupsAreCompleted(t *testing.T) {
	s := connect(t)
	s.group(t, "ledger")
	got := conclave(t, nil, "__complete", "explain", "--kubeconfig", s.kubeconfig, "-n", s.namespace, "l")
	if !strings.HasPrefix(got.out, "ledger\n") {
		t.Errorf("the groups that can be explained are %q", got.out)
	}
}

func TestAnErrorOfTheServerIsOneLine(t *testing.T) {
	s := connect(t)
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	stranger := "--as=nobody@example.org"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no such group":  {[]string{"status", "ledger"}, "there is no group ledger in namespace bank: kubectl get electiongroups -A lists all"},
		"nor to watch":   {[]string{"watch", "ledger"}, "there is no group ledger in namespace bank: kubectl get electiongroups -A lists all"},
		"nor to explain": {[]string{"explain", "ledger"}, "there is no group ledger in namespace bank: kubectl get electiongroups -A lists all"},
		"not allowed": {[]string{"status", "ledger", stranger}, `electiongroups.conclave.dev "ledger" is forbidden: User "nobody@example.org" ` +
			`cannot get resource "electiongroups" in API group "conclave.dev" in the namespace "bank"`},
		"no server":  {[]string{"status", "--server", "http://127.0.0.1:1"}, "reach the API server: dial tcp 127.0.0.1:1: connect: connection refused"},
		"no context": {[]string{"status", "--context", "moon"}, `choose a cluster: context "moon" does not exist`},
		"no Conclave": {[]string{"status", "--server", empty.URL}, "this cluster has no ElectionGroups: install Conclave first " +
			"(the server could not find the requested resource (get electiongroups.conclave.dev))"},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.conclave(t, test.args...)
			if got.status != 1 || got.err != "error: "+test.want+"\n" || got.out != "" {
				t.Errorf("%v: status %d, stderr is\n%swant\nerror: %s\nstdout is %q", test.args, got.status, got.err, test.want, got.out)
			}
		})
	}
}

func TestWatchWritesALineForEachChange(t *testing.T) {
	s := connect(t)
	g := s.group(t, "ledger")
	lines := s.background(t, "watch", "ledger")
	expect(t, lines, `ledger-2 leads in term 100$`)
	s.elect(t, g, -1, 100)
	expect(t, lines, `nobody leads: ledger-2 did, in term 100$`)
	s.elect(t, g, 1, 101)
	expect(t, lines, `ledger-1 leads in term 101, after ledger-2; nobody led for [0-9.]+m?s, as the status showed it$`)
	if err := s.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	expect(t, lines, `the group has been deleted$`)
	s.group(t, "ledger")
	expect(t, lines, `the group has been made$`)
}

// expect waits for a line, and wants it to be the next one.
func expect(t *testing.T, lines <-chan string, pattern string) {
	t.Helper()
	select {
	case line, ok := <-lines:
		if !ok || !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  `+pattern).MatchString(line) {
			t.Fatalf("the next line is %q (%v), want %s", line, ok, pattern)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("no line came, want %s", pattern)
	}
}
