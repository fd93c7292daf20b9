package pod

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// replace gives a pod an empty state directory, as a new pod of the same name has.
func (g *testPod) replace() {
	g.t.Helper()
	g.end()
	must.Succeed(g.t, os.RemoveAll(g.settings.StateDir))
	g.openState(func(s *state.Store) error {
		g.identity = memberlist.FormatIdentity(uint64(s.Identity()))
		return nil
	})
}

// grants returns when the agent adopted its present list, and when it sent its first grant, which is zero before that.
func (g *testPod) grants() (adopted, granted time.Time) {
	g.t.Helper()
	_, text := g.callLocalAPI("/v1/groups/ledger" + journal.Path)
	var j journal.Journal
	must.Succeed(g.t, json.Unmarshal([]byte(text), &j))
	for i := range j.Steps {
		s := &j.Steps[i]
		if s.Input == election.Adopt.String() {
			adopted = s.At
		}
		grants := func(m journal.Message) bool { return m.Kind == election.Grant.String() }
		if granted.IsZero() && slices.ContainsFunc(s.Sent, grants) {
			granted = s.At
		}
	}
	return adopted, granted
}

// TestReplacedPodVotesUnderTheListThatNamesIt: the pod of a is replaced. Under the list that names the state directory
// of its predecessor it doesn't vote, and says why. Under the next one it votes at once: it has nothing to remember.
func TestReplacedPodVotesUnderTheListThatNamesIt(t *testing.T) {
	c, _ := startClusterWith(t, steady, "a", "b", "c") // The lease is 4 s.
	a, before := c.pods["a"], steady(c.document(2, "a", "b", "c"))
	c.publish(before)
	a.replace()
	s := a.start().watch()
	r := s.await("a has the list, and the coordinator", func(r control.Report) bool {
		return r.Version == 1 && r.Coordinator == "c"
	})
	if want := "its state directory is new: it votes under the next member list"; r.Eligible || r.Ineligible != want {
		t.Errorf("got eligible %t, %q, want %q", r.Eligible, r.Ineligible, want)
	}
	testwait.Until(t, "a isn't ready", func() bool { status, _ := a.callLocalAPI("/readyz"); return status == 503 })

	next := steady(c.document(3, "a", "b", "c"))
	next.Group.Version = 29_000_000
	next.Group.Previous = &memberlist.List{Version: 1, Members: before.Group.Members}
	if _, granted := a.grants(); !granted.IsZero() {
		t.Errorf("a granted at %s, under the list of its predecessor", granted)
	}
	for _, g := range c.pods {
		g.push(next)
	}
	var waited time.Duration
	testwait.Until(t, "a grants", func() bool {
		adopted, granted := a.grants()
		waited = granted.Sub(adopted)
		return !granted.IsZero()
	})
	t.Logf("the first grant came %s after the list", waited)
	expect.AtMostf(t, waited, 4*time.Second/2, "time from the list to the first grant")
	s.await("a is eligible", func(r control.Report) bool { return r.Version == 29_000_000 && r.Eligible })
}

// TestOneOfTwoIsReplaced: the pod of a is being deleted, so the operator excludes it, and publishes a list without it.
// In whatever order that and the end of its agent happen, b, the coordinator, keeps the office.
func TestOneOfTwoIsReplaced(t *testing.T) {
	for _, order := range []string{"exclude, list, end", "exclude, end, list", "end, exclude, list"} {
		t.Run(order, func(t *testing.T) {
			shorter := func(d control.Document) control.Document { // Agents wait at most six seconds.
				d = steady(d)
				d.Group.Safety.LeaseMillis, d.Group.Safety.LongestLeaseMillis = 2000, 2000
				d.Group.Timing.SuspicionTimeoutMillis = new(int32(1500))
				return d
			}
			c, _ := startClusterWith(t, shorter, "a", "b")
			a, ended := c.pods["a"], make(chan struct{})
			term := decodeReport(t, c.pods["b"].watch().next()).Term
			next := shorter(c.document(2, "b"))
			next.Group.Version = 2
			next.Group.Previous = &memberlist.List{Version: 1, Members: c.document(1, "a", "b").Group.Members}
			for event := range strings.SplitSeq(order, ", ") {
				switch event {
				case "exclude":
					status, body := a.callOperatorAPI(c.operator, http.MethodPut,
						control.GroupPath("ledger")+control.EligibilityPath, `{"eligible":false}`)
					must.Equalf(t, status, http.StatusNoContent, "exclusion of a: %s", body)
				case "list":
					for _, g := range c.pods {
						g.push(next)
					}
				case "end":
					go func() { defer close(ended); a.end() }()
					testwait.Until(t, "a ends", func() bool { return a.log.Contains("shutting down") })
				}
			}
			testwait.Receive(t, "the end of a", ended)
			c.pods["b"].wantTenure(term, 3*time.Second)
		})
	}
}

// wantTenure fails if the pod doesn't lead in a term for a time.
func (g *testPod) wantTenure(term uint64, during time.Duration) {
	g.t.Helper()
	for start := time.Now(); time.Since(start) < during; time.Sleep(during / 100) {
		_, text := g.callLocalAPI("/v1/groups/ledger/leader")
		if !strings.Contains(text, `"coordinator":"`+g.name+`"`) || !strings.Contains(text, fmt.Sprintf(`"term":%d,`, term)) {
			g.t.Fatalf("got %s, want %s in term %d", text, g.name, term)
		}
	}
}

// TestIdentityBecomesKnown: a list is published before the operator knows the state directory of a. It names that
// later, under the same version. In the meantime, the others elect.
func TestIdentityBecomesKnown(t *testing.T) {
	c, _ := startClusterWith(t, func(d control.Document) control.Document {
		d.Group.Members[0].Identity = ""
		return d
	}, "a", "b", "c")
	s := c.pods["a"].watch()
	s.await("a doesn't vote", func(r control.Report) bool { return r.Coordinator == "c" && !r.Eligible })
	next := c.document(2, "a", "b", "c")
	c.pods["a"].push(next) // The others don't know it yet.
	s.await("a votes", func(r control.Report) bool {
		return r.Revision == 2 && r.Version == 1 && r.Coordinator == "c" && r.Eligible && len(r.Problems) == 0
	})
	for _, name := range []string{"b", "c"} {
		c.pods[name].push(next)
	}
	testwait.Until(t, "the coordinator hands over to a, which needs another grant", func() bool {
		status, _ := c.pods["c"].callOperatorAPI(c.operator, http.MethodPost,
			control.GroupPath("ledger")+control.StepDownPath, `{"to":"a"}`)
		return status == http.StatusOK
	})
}
