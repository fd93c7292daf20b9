package controllers_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// document returns the published document, as an agent received it.
func (e *env) document(group string) control.Document {
	e.t.Helper()
	var found *control.Document
	e.eventually("an agent has received the published document of "+group, func() bool {
		published := e.group(group).Status.Protocol.Document
		found = e.received(group, published)
		return found != nil
	})
	return *found
}

// received returns a document that an agent received, or nil.
func (e *env) received(group string, published *v1.PublishedDocument) *control.Document {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, agent := range e.agents {
		for _, call := range agent.Calls() {
			if published == nil || call.Method != http.MethodPut || call.Path != control.GroupPath(group) {
				continue
			}
			document := &control.Document{}
			expect.Succeed(e.t, json.Unmarshal([]byte(call.Body), document))
			if document.Revision != published.Revision {
				continue
			}
			if digest := sha256.Sum256([]byte(call.Body)); hex.EncodeToString(digest[:]) != published.Digest {
				e.t.Errorf("got a document with another digest than the published revision %d:\n%s", published.Revision, call.Body)
			}
			return document
		}
	}
	return nil
}

// An operator with a stale cache gives an agent without a document none: the agent would begin with an
// old list. The others get theirs although the read of the group fails.
func TestFirstDocumentIsReadFromTheAPIServer(t *testing.T) {
	e := newEnv(t)
	var fail atomic.Bool
	o := e.startOperator(func(o *operator) {
		o.rejectsRead = func(r *http.Request) bool {
			return fail.Load() && strings.HasSuffix(r.URL.Path, "/electiongroups/ledger")
		}
	})
	e.createSettledGroup(o)
	before := e.document("ledger").Revision
	// older makes ledger-1 report an older document over another connection.
	older := func(by int64) {
		calls := len(e.agents["ledger-1"].Calls())
		e.agents["ledger-1"].ChangeReport("ledger", func(r *control.Report) { r.Revision = before - by })
		e.agents["ledger-1"].CloseStreams()
		e.eventually("ledger-1 has the document again", func() bool { return len(e.agents["ledger-1"].Calls()) > calls })
	}
	resume, reads := o.pauseWatch("electiongroups"), o.countReads("/electiongroups/ledger")
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Annotations = map[string]string{"of": "user"} })
	must.Succeed(t, e.agents["ledger-0"].Stop())
	e.startAgent("ledger-0", string(e.group("ledger").Status.Protocol.MemberList.Identities["ledger-0"]), "ledger")
	older(1)
	e.eventually("the operator has read the group", func() bool { return o.countReads("/electiongroups/ledger") > reads })
	e.awaitQuiet(o)
	expect.Equalf(t, e.inGroup("ledger-0", "ledger"), false,
		"ledger-0 is in the group, by an operator whose cache is behind")
	fail.Store(true)
	resume()
	older(2)
	e.electAndAwait("ledger", "ledger-1", 8)
	fail.Store(false)
	e.eventually("ledger-0 is in the group", func() bool { return e.inGroup("ledger-0", "ledger") })
}
