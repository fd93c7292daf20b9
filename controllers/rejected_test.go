package controllers_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// An object that routes traffic can't be written, and later it can.
func TestTrafficWriteIsRejected(t *testing.T) {
	t.Parallel()
	for operation, path := range map[string]string{
		"apply EndpointSlice ledger-leader-conclave": "/endpointslices/", "label pod ledger-": "/pods/",
		"write Service ledger-leader: ": "/services/",
	} {
		t.Run(operation, func(t *testing.T) {
			e := newEnv(t)
			var reject atomic.Bool
			o := e.startOperator(func(o *operator) {
				o.rejects = func(r *http.Request) bool { return reject.Load() && strings.Contains(r.URL.Path, path) }
			})
			e.createSettledGroup(o)
			reject.Store(true)
			e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Service.Ports[0].Port++ })
			e.elect("ledger", "ledger-1", 8)
			ready := e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonWriteFailed)
			if want := "Traffic may go to the wrong pod because a write failed: " +
				operation; !strings.HasPrefix(ready.Message, want) {
				t.Errorf("got message %q, want the prefix %q", ready.Message, want)
			}
			e.awaitCoordinator("ledger", "ledger-1", 8)
			if path == "/services/" { // A Service that can't be changed follows the coordinator all the same.
				e.awaitRoute("ledger-1")
			}
			reject.Store(false)
			e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonHealthy)
			e.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
			e.awaitRoute("ledger-1")
		})
	}
}

// The API server refuses a status as invalid, in which the newest term is negative. The traffic follows the election
// nevertheless, and the status says why it doesn't.
func TestInvalidStatusDelaysNoTraffic(t *testing.T) {
	e := newEnv(t)
	var spoil atomic.Bool
	o := e.startOperator(func(o *operator) {
		o.beforeWrite = func(r *http.Request) {
			if !spoil.Load() || !strings.HasSuffix(r.URL.Path, "/electiongroups/ledger/status") {
				return
			}
			body, err := io.ReadAll(r.Body)
			expect.Succeed(t, err)
			body = bytes.ReplaceAll(body, []byte(`"term":8`), []byte(`"term":-8`))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
	})
	e.createSettledGroup(o)
	spoil.Store(true)
	e.elect("ledger", "ledger-1", 8)
	ready := e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonWriteFailed)
	if want := "The status isn't up to date, because the API server refuses it: write the status: "; !strings.HasPrefix(
		ready.Message, want) {
		t.Errorf("got message %q, want the prefix %q", ready.Message, want)
	}
	e.awaitRoute("ledger-1")
	e.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
	spoil.Store(false)
	e.awaitCoordinator("ledger", "ledger-1", 8)
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonHealthy)
}

// Pods can't be patched, for example because they violate a policy of the cluster that is newer than they are. In
// Strict mode, the operator publishes nothing to pods that it doesn't hold. But status and Service follow elections.
func TestFinalizerIsRejected(t *testing.T) {
	e := newEnv(t)
	var reject atomic.Bool
	o := e.startOperator(func(o *operator) {
		o.rejects = func(r *http.Request) bool { return reject.Load() && strings.Contains(r.URL.Path, "/pods/") }
	})
	e.createSettledGroup(o)
	before := e.document("ledger").Revision
	reject.Store(true)
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Safety.Mode = v1.Strict })
	ready := e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonWriteFailed)
	if want := "Agents keep their current settings because a write failed: write the finalizer of pod " +
		"ledger-"; !strings.HasPrefix(ready.Message, want) {
		t.Errorf("got message %q, want the prefix %q", ready.Message, want)
	}
	e.electAndAwait("ledger", "ledger-1", 8)
	e.awaitRoute("ledger-1")
	expect.Equalf(t, e.document("ledger").Revision, before, "revision while the pods aren't held")
	reject.Store(false)
	for _, pod := range []string{"ledger-0", "ledger-1", "ledger-2"} {
		e.awaitHeld(pod, true)
	}
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonHealthy)

	// The same for a finalizer that can't be removed.
	reject.Store(true)
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Safety.Mode = v1.Majority })
	e.electAndAwait("ledger", "ledger-0", 9)
	e.awaitRoute("ledger-0")
	reject.Store(false)
	for _, pod := range []string{"ledger-0", "ledger-1", "ledger-2"} {
		e.awaitHeld(pod, false)
	}
}
