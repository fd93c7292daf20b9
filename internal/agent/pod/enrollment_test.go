package pod

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// awaitNotReady waits until /readyz reports a problem.
func (g *testPod) awaitNotReady(problem string) {
	g.t.Helper()
	testwait.Until(g.t, g.name+" reports "+problem, func() bool {
		status, body := g.callLocalAPI("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, problem)
	})
}

// errDone is the result of an application that has been the coordinator.
var errDone = errors.New("done")

// TestLocalAPIRespondsBeforeEnrollment: it reports what is missing. The log has each
// error once, although the agent retries.
func TestLocalAPIRespondsBeforeEnrollment(t *testing.T) {
	c := newCluster(t)
	a := c.add("a")
	c.publish(c.document(1, "a"))
	c.refuseWith("")
	must.Succeed(t, os.RemoveAll(a.settings.MountDir))
	a.start()
	led, seen := make(chan error, 1), make(chan struct{})
	leading := func(context.Context, uint64) error {
		<-seen
		return errDone
	}
	go func() { led <- client.Run(t.Context(), "ledger", leading, client.At("http://"+a.settings.API)) }()
	a.awaitNotReady("waiting for a certificate: cannot read the token for the identity service: stat ")
	wantStatus(t, "/healthz", http.StatusOK)(a.callLocalAPI("/healthz"))
	for group, want := range map[string]int{"ledger": http.StatusServiceUnavailable, "other": http.StatusNotFound} {
		wantStatus(t, "group "+group, want)(a.callLocalAPI("/v1/groups/" + group + "/leader"))
	}
	c.refuseWith("this pod names no group")
	a.mount(map[string]string{"token": "bank/a\n"})
	a.awaitNotReady(
		"waiting for a certificate: the identity service refused the request (403 Forbidden): this pod names no group")
	testwait.Until(t, "it has enrolled several times", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.tokens) > 3
	})
	for _, message := range []string{"cannot read the token", "this pod names no group"} {
		expect.Equalf(t, a.log.Count(message), 1, "%q in the log", message)
	}
	c.refuseWith("")
	a.watch().await("a is the coordinator", hasCoordinator("a"))
	close(seen)
	// The application, which started before the agent had a certificate, has waited.
	expect.ErrorIsf(t, <-led, errDone, "the application to have been the coordinator")
	a.awaitNotReady("group audit: waiting for its document")
	if _, body := a.callLocalAPI("/readyz"); strings.Contains(body, "certificate") {
		t.Errorf("got %s, want no problem with the certificate", body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.tokens, func(token string) bool { return token != "bank/a" }) {
		t.Errorf("got tokens %q", c.tokens)
	}
}

// TestRenewalKeepsTheCoordinator: no process loses its office because of a renewal.
func TestRenewalKeepsTheCoordinator(t *testing.T) {
	c := newCluster(t)
	c.valid = 8 * time.Second // Long enough for a renewal on a busy machine.
	for _, name := range []string{"a", "b", "c"} {
		c.add(name)
	}
	c.publish(steady(c.document(1, "a", "b", "c")))
	var streams []*stream
	for _, g := range c.pods {
		streams = append(streams, g.start().watch())
	}
	var term uint64
	for _, s := range streams {
		term = s.await("c is the coordinator", hasCoordinator("c")).Term
	}
	requests := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.tokens)
	}
	before := requests()
	testwait.Until(t, "each agent has renewed its certificate three times", func() bool { return requests() >= before+9 })
	for _, g := range c.pods {
		r := g.watch().await("c is the coordinator", hasCoordinator("c"))
		expect.Equalf(t, r.Term, term, "%s: term", g.name)
	}
}

func TestCertificateOfAnotherPodIsRefused(t *testing.T) {
	c := newCluster(t)
	a := c.add("a")
	a.mount(map[string]string{"token": "bank/b"})
	a.start()
	a.awaitNotReady("certificate must be for pod a in namespace bank, got conclave://bank/ledger/b")
	if files, err := filepath.Glob(filepath.Join(a.settings.StateDir, "identity.*")); err != nil || len(files) > 0 {
		t.Errorf("got files %v, %v, want none", files, err)
	}
}

// TestFromEnvironment: all errors are reported, one line each.
func TestFromEnvironment(t *testing.T) {
	_, ca, err := identity.NewCA("test", time.Hour)
	must.Succeed(t, err)
	good := map[string]string{
		"POD_NAME": "a-0", "POD_NAMESPACE": "bank", "POD_IP": "fd00::7", "CONCLAVE_GROUPS": " ledger,audit,,ledger",
		"CONCLAVE_IDENTITY": "https://conclave-identity.conclave-system.svc/",
		"CONCLAVE_PROBE":    "http://127.0.0.1:8080/healthz",
		"CONCLAVE_CA":       string(ca.Cert),
	}
	s, err := FromEnvironment(func(key string) string { return good[key] })
	if err != nil || !slices.Equal(s.Groups, []string{"ledger", "audit"}) || s.Peers != "[fd00::7]:7373" ||
		s.Operator != "[fd00::7]:7375" ||
		s.IdentityURL != "https://conclave-identity.conclave-system.svc" || s.Probe.URL != good["CONCLAVE_PROBE"] ||
		s.API != "127.0.0.1:7374" {
		t.Errorf("got %+v, %v", s, err)
	}
	const all = `environment: POD_NAME must be a name such as a or ledger-0, got an empty string
environment: POD_NAMESPACE must be a name such as a or ledger-0, got an empty string
environment: POD_IP must be the pod's address such as 10.0.0.7, got ""
environment: CONCLAVE_IDENTITY must be a URL such as https://conclave-identity.conclave-system.svc, got ""
environment: CONCLAVE_CA: must contain complete CA certificates in PEM
environment: CONCLAVE_GROUPS must be the names of the pod's groups, separated by commas, such as ledger,audit`
	if _, err := FromEnvironment(func(string) string { return "" }); err == nil || err.Error() != all {
		t.Errorf("empty environment: got %v", err)
	}
	for key, c := range map[string][2]string{
		"POD_IP":             {"0.0.0.0", "POD_IP must be the pod's address"},
		"CONCLAVE_GROUPS":    {"ledger,Audit", `CONCLAVE_GROUPS: a group's name must consist of lower-case letters`},
		"CONCLAVE_IDENTITY":  {"http://x", "CONCLAVE_IDENTITY must be a URL such as https://"},
		"CONCLAVE_CA":        {"nonsense", "CONCLAVE_CA: must contain complete CA certificates in PEM"},
		"CONCLAVE_LOG_LEVEL": {"loud", `CONCLAVE_LOG_LEVEL must be debug, info, warn or error, got "loud"`},
		"CONCLAVE_PROBE":     {"http://10.0.0.1/", "CONCLAVE_PROBE must be an http URL on a loopback address"},
	} {
		_, err := FromEnvironment(func(name string) string {
			if name == key {
				return c[0]
			}
			return good[name]
		})
		if err == nil || !strings.Contains(err.Error(), c[1]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%s: got %v, want %s", key, c[0], err, c[1])
		}
	}
}

// TestSlowReaderReceivesLatestReports, and an event for each group that was left.
func TestSlowReaderReceivesLatestReports(t *testing.T) {
	hub := newReportHub(control.Agent{Pod: "a", Groups: []string{"ledger"}}, time.Hour)
	hub.publish(control.Report{Group: "old", UID: "1"})
	r := hub.Reports()
	for term := range uint64(1000) {
		hub.publish(control.Report{Group: "ledger", UID: "1", Term: term})
		hub.publish(control.Report{Group: "audit", UID: "1", Term: term})
	}
	hub.groupLeft("ledger")
	hub.groupLeft("nothing")
	hub.publish(control.Report{Group: "ledger", UID: "2"})
	hub.groupLeft("ledger")
	hub.publish(control.Report{Group: "ledger", UID: "3"})
	want := []any{
		control.Report{Group: "old", UID: "1"},
		control.Agent{Pod: "a", Groups: []string{"ledger"}},
		control.Report{Group: "audit", UID: "1", Term: 999},
		control.Left{Group: "ledger", UID: "1"},
		control.Left{Group: "ledger", UID: "2"},
		control.Report{Group: "ledger", UID: "3"},
	}
	for i, event := range want {
		e, err := r.Next(t.Context())
		if err != nil || !sameEvent(e, event) {
			t.Errorf("event %d: got %+v, %v, want %+v", i, e, err, event)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if e, err := r.Next(ended); err == nil {
		t.Errorf("got another event: %+v", e)
	}
	r.Close()
	hub.publish(control.Report{Group: "ledger"})
	if e, err := r.Next(ended); err == nil {
		t.Errorf("got an event after Close: %+v", e)
	}
}

func sameEvent(e api.Event, want any) bool {
	if r, ok := e.Data.(control.Report); ok {
		w, same := want.(control.Report)
		return same && r.Group == w.Group && r.UID == w.UID && r.Term == w.Term
	}
	return reflect.DeepEqual(e.Data, want)
}
