package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const document = `{"uid":"6f1d1c4e-6bd7","generation":3,"revision":1795000000000,"group":{"name":"ledger",` +
	`"algorithm":"Bully","safety":{"mode":"Strict","leaseMillis":800},` +
	`"preemption":{"policy":"Never","stableMillis":5000},"timing":{"heartbeatMillis":200},` +
	`"application":{"session":"Required"},"version":29000000,` +
	`"members":[{"name":"a","priority":10,"address":"10.0.0.1:7373"},` +
	`{"name":"b","priority":20,"uid":"0b5c8f3e-1","identity":"00a0b1c2d3e4f567"}],` +
	`"previous":{"version":28000000,"members":[{"name":"c","priority":5,"address":"10.0.0.1:7373"}]},` +
	`"departed":["c"]}}`

func TestParseDocument(t *testing.T) {
	g, err := config.ParseDocument("pushed", []byte(document))
	must.Succeed(t, err)
	from := config.Provenance{UID: "6f1d1c4e-6bd7", Generation: 3, Revision: 1795000000000}
	safety := config.Safety{Mode: office.Strict, Lease: 2 * time.Second, UsualLease: 800 * time.Millisecond}
	if g.Provenance != from || g.Name != "ledger" || g.Algorithm != "Bully" || g.Safety != safety || !g.Session {
		t.Errorf("got %+v", g)
	}
	b := memberlist.Member{Name: "b", Priority: 20, UID: "0b5c8f3e-1", Identity: "00a0b1c2d3e4f567"}
	if m := g.List.Members; len(m) != 2 || m[1] != b || g.List.Previous.Version != 28000000 ||
		g.List.Previous.Members[0].Name != "c" {
		t.Errorf("got list %+v", g.List)
	}
}

// TestLongestLease: an operator waits for the longest lease that its documents name.
func TestLongestLease(t *testing.T) {
	text := strings.Replace(document, `"leaseMillis":800`, `"leaseMillis":800,"longestLeaseMillis":2500`, 1)
	g, err := config.ParseDocument("pushed", []byte(text))
	must.Succeed(t, err)
	want := config.Safety{Mode: office.Strict, Lease: 2500 * time.Millisecond, UsualLease: 800 * time.Millisecond}
	expect.Equal(t, g.Safety, want)
	expect.Equalf(t, control.LongestLease(time.Second), 2*time.Second, "longest lease, usually 1 s")
	expect.Equalf(t, control.LongestLease(3*time.Second), 3*time.Second, "longest lease, usually 3 s")
}

func TestTextIsNoDocument(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "pushed: unexpected end of JSON input",
		"uid: x":                         "pushed: invalid character 'u' looking for beginning of value",
		"[]":                             "pushed: must be a mapping, got a list",
		strings.Repeat("[", 20_000):      "pushed: invalid character '[' exceeded max depth",
		strings.Repeat("x", 1<<20) + "x": "pushed: must have at most 1048576 bytes",
	} {
		_, err := config.ParseDocument("pushed", []byte(text))
		expect.ErrorContainsf(t, err, want, "document %.20q", text)
	}
}

// TestParseDocumentIgnoresUnknownFields: agents may be older than the operator, which is updated first. In a file of a
// user, an unknown field is an error, because it may be misspelled.
func TestParseDocumentIgnoresUnknownFields(t *testing.T) {
	want, err := config.ParseDocument("pushed", []byte(document))
	must.Succeed(t, err)
	more := strings.ReplaceAll(document, "{", `{"mood":{"is":["good"]},`)
	got, err := config.ParseDocument("pushed", []byte(more))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v: %v\n%s", got, want, err, more)
	}
}

// TestCheckSafetyChange: the Available mode is fixed.
func TestCheckSafetyChange(t *testing.T) {
	for mode, allowed := range map[string]bool{
		`Strict","leaseMillis":800`: true, `Majority","leaseMillis":800`: true, `Strict","leaseMillis":801`: true,
		`Available","leaseMillis":800`: false,
	} {
		before, err := config.ParseDocument("pushed", []byte(document))
		must.Succeed(t, err)
		next, err := config.ParseDocument("pushed", []byte(strings.Replace(document, `Strict","leaseMillis":800`, mode, 1)))
		must.Succeed(t, err)
		if err := next.CheckSafetyChange(*before); (err == nil) != allowed {
			t.Errorf("to %s: %v", mode, err)
		}
		if err := before.CheckSafetyChange(*next); (err == nil) != allowed {
			t.Errorf("from %s: %v", mode, err)
		}
	}
}
