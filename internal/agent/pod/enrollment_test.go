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
)

// waits for what readyz says.
func (g *testPod) awaitNotReady(because string) {
	g.t.Helper()
	eventually(g.t, g.name+" says "+because, func() bool {
		status, body := g.callLocalAPI("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, because)
	})
}

// errDone is what an application returns that has led.
var errDone = errors.New("led")

// TestWithoutACertificateTheApplicationIsAnswered, told what is missing, and told
// once in the log, however often it is tried.
func TestWithoutACertificateTheApplicationIsAnswered(t *testing.T) {
	c := newCluster(t)
	a := c.add("a")
	c.publish(c.document(1, "a"))
	c.refuseWith("")
	if err := os.RemoveAll(a.settings.MountDir); err != nil {
		t.Fatal(err)
	}
	a.start()
	led, seen := make(chan error, 1), make(chan struct{})
	leading := func(context.Context, uint64) error {
		<-seen
		return errDone
	}
	go func() { led <- client.Run(t.Context(), "ledger", leading, client.At("http://"+a.settings.API)) }()
	a.awaitNotReady("waits for its certificate: the token to show to the identity service: open ")
	if status, body := a.callLocalAPI("/healthz"); status != http.StatusOK {
		t.Errorf("it is said to be unwell: %d %s", status, body)
	}
	for group, want := range map[string]int{"ledger": http.StatusServiceUnavailable, "other": http.StatusNotFound} {
		if status, body := a.callLocalAPI("/v1/groups/" + group + "/leader"); status != want {
			t.Errorf("of %s it says %d %s", group, status, body)
		}
	}
	c.refuseWith("this pod names no group")
	a.mount(map[string]string{"token": "bank/a\n"})
	a.awaitNotReady("waits for its certificate: the identity service refuses a certificate (403 Forbidden): this pod names no group")
	eventually(t, "it has asked several times", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.tokens) > 3
	})
	for _, told := range []string{"the token to show", "this pod names no group"} {
		if n := a.log.count(told); n != 1 {
			t.Errorf("the log says %q %d times", told, n)
		}
	}
	c.refuseWith("")
	a.watch().await("a leads", hasCoordinator("a"))
	close(seen)
	// A program that was there from the first moment on has waited.
	if err := <-led; !errors.Is(err, errDone) {
		t.Error("the application hasn't led:", err)
	}
	a.awaitNotReady("group audit: it isn't known who takes part")
	if _, body := a.callLocalAPI("/readyz"); strings.Contains(body, "certificate") {
		t.Errorf("it still says %s", body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.tokens, func(token string) bool { return token != "bank/a" }) {
		t.Errorf("it showed %q", c.tokens)
	}
}

// TestTheIdentityServiceIsTrustedByWhatIsMounted: without a word from the pod.
func TestTheIdentityServiceIsTrustedByWhatIsMounted(t *testing.T) {
	c := newCluster(t)
	a := c.add("a")
	c.publish(c.document(1, "a"))
	stranger := newCluster(t)
	a.settings.CABundle = nil
	a.start()
	a.awaitNotReady("no authority is known by which to trust the identity service")
	a.mount(map[string]string{"token": "bank/a", "audit/ca.pem": string(stranger.ca.Cert)})
	a.awaitNotReady("certificate signed by unknown authority")
	a.mount(map[string]string{"token": "bank/a", "audit/ca.pem": string(stranger.ca.Cert), "ledger/ca.pem": "nonsense"})
	a.mount(map[string]string{"token": "bank/a", "audit/ca.pem": string(stranger.ca.Cert), "ledger/ca.pem": string(c.ca.Cert)})
	a.watch().await("a leads", hasCoordinator("a"))
	pair, err := stranger.authority.Issue(identity.Names{control.Operator}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := a.callOperatorAPI(c.files(pair, stranger.ca), http.MethodGet, control.GroupPath("ledger"), ""); status != http.StatusMethodNotAllowed {
		t.Errorf("the authority that is mounted isn't trusted: %d %s", status, body)
	}
}

// TestCertificatesAreRenewedWhileConnectionsLive: nobody loses its office over it.
func TestCertificatesAreRenewedWhileConnectionsLive(t *testing.T) {
	c := newCluster(t)
	c.valid = 2 * time.Second
	for _, name := range []string{"a", "b", "c"} {
		c.add(name)
	}
	c.publish(c.document(1, "a", "b", "c"))
	var streams []*stream
	for _, g := range c.pods {
		streams = append(streams, g.start().watch())
	}
	var term uint64
	for _, s := range streams {
		term = s.await("c leads", hasCoordinator("c")).Term
	}
	asked := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.tokens)
	}
	before := asked()
	eventually(t, "each has renewed its certificate thrice", func() bool { return asked() >= before+9 })
	for _, g := range c.pods {
		r := g.watch().await("c leads", hasCoordinator("c"))
		if r.Term != term {
			t.Errorf("%s says that c was elected again: %+v", g.name, r)
		}
	}
}

// TestACertificateForSomebodyElseIsRefused.
func TestACertificateForSomebodyElseIsRefused(t *testing.T) {
	c := newCluster(t)
	a := c.add("a")
	a.mount(map[string]string{"token": "bank/b"})
	a.start()
	a.awaitNotReady("the certificate is for conclave://bank/ledger/b, and not for pod a in namespace bank")
	if files, err := filepath.Glob(filepath.Join(a.settings.StateDir, "identity*")); err != nil || len(files) > 0 {
		t.Errorf("it keeps %v, %v", files, err)
	}
}

// TestWhatThePodSays is checked as a whole, a line for each mistake.
func TestWhatThePodSays(t *testing.T) {
	good := map[string]string{
		"POD_NAME": "a-0", "POD_NAMESPACE": "bank", "POD_IP": "fd00::7", "CONCLAVE_GROUPS": " ledger,audit,,ledger",
		"CONCLAVE_IDENTITY": "https://conclave-identity.conclave-system.svc/", "CONCLAVE_PROBE": "http://127.0.0.1:8080/healthz",
	}
	s, err := FromEnvironment(func(key string) string { return good[key] })
	if err != nil || !slices.Equal(s.Groups, []string{"ledger", "audit"}) || s.Peers != "[fd00::7]:7373" || s.Operator != "[fd00::7]:7375" ||
		s.IdentityURL != "https://conclave-identity.conclave-system.svc" || s.Probe.URL != good["CONCLAVE_PROBE"] || s.API != "127.0.0.1:7374" {
		t.Errorf("understood as %+v, %v", s, err)
	}
	const all = `environment: POD_NAME must be a name such as a or ledger-0, not nothing
environment: POD_NAMESPACE must be a name such as a or ledger-0, not nothing
environment: POD_IP must be the pod's address such as 10.0.0.7, not ""
environment: CONCLAVE_IDENTITY must be a URL such as https://conclave-identity.conclave-system.svc, not ""
environment: CONCLAVE_GROUPS must name the pod's groups, by commas, such as ledger,audit`
	if _, err := FromEnvironment(func(string) string { return "" }); err == nil || err.Error() != all {
		t.Errorf("nothing at all: %v", err)
	}
	for key, c := range map[string][2]string{
		"POD_IP":            {"0.0.0.0", "POD_IP must be the pod's address"},
		"CONCLAVE_GROUPS":   {"ledger,Audit", `CONCLAVE_GROUPS: a group's name must be lower-case letters`},
		"CONCLAVE_IDENTITY": {"http://x", "CONCLAVE_IDENTITY must be a URL such as https://"},
		"CONCLAVE_CA":       {"nonsense", "CONCLAVE_CA: must contain complete CA certificates in PEM"},
		"CONCLAVE_PROBE":    {"http://10.0.0.1/", "CONCLAVE_PROBE must be http on a loopback address"},
	} {
		_, err := FromEnvironment(func(name string) string {
			if name == key {
				return c[0]
			}
			return good[name]
		})
		if err == nil || !strings.Contains(err.Error(), c[1]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%s: %v", key, c[0], err)
		}
	}
}

// TestAReaderThatIsSlowMissesNothing: it is told what is, and each group that was
// left.
func TestAReaderThatIsSlowMissesNothing(t *testing.T) {
	b := newReportHub(control.Agent{Pod: "a", Groups: []string{"ledger"}})
	b.publish(control.Report{Group: "old", UID: "1"})
	r := b.Reports()
	for term := range uint64(1000) {
		b.publish(control.Report{Group: "ledger", UID: "1", Term: term})
		b.publish(control.Report{Group: "audit", UID: "1", Term: term})
	}
	b.groupLeft("ledger")
	b.groupLeft("nothing")
	b.publish(control.Report{Group: "ledger", UID: "2"})
	b.groupLeft("ledger")
	b.publish(control.Report{Group: "ledger", UID: "3"})
	want := []any{
		control.Report{Group: "old", UID: "1"},
		control.Agent{Pod: "a", Groups: []string{"ledger"}},
		control.Report{Group: "audit", UID: "1", Term: 999},
		control.Left{Group: "ledger", UID: "1"},
		control.Left{Group: "ledger", UID: "2"},
		control.Report{Group: "ledger", UID: "3"},
	}
	for i, wanted := range want {
		e, err := r.Next(t.Context())
		if err != nil || !sameEvent(e, wanted) {
			t.Errorf("event %d is %+v, %v, and not %+v", i, e, err, wanted)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if e, err := r.Next(ended); err == nil {
		t.Errorf("there is more: %+v", e)
	}
	r.Close()
	b.publish(control.Report{Group: "ledger"})
	if e, err := r.Next(ended); err == nil {
		t.Errorf("whoever has closed is still told: %+v", e)
	}
}

func sameEvent(e api.Event, wanted any) bool {
	if r, ok := e.Data.(control.Report); ok {
		w, same := wanted.(control.Report)
		return same && r.Group == w.Group && r.UID == w.UID && r.Term == w.Term
	}
	return reflect.DeepEqual(e.Data, wanted)
}
