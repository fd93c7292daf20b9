package controllers_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// withShortWaits shortens the lease, and so the waits that follow from it.
func withShortWaits(group *v1.ElectionGroup) {
	group.Spec.Timing.HeartbeatMillis = 20
	group.Spec.Safety.LeaseMillis = 60
}

// runScenario runs a scenario that includes every kind of write: a first list, an
// election, other members, another election, another Service.
func (e *env) runScenario() {
	e.t.Helper()
	for _, pod := range []string{"p-0", "p-1", "p-2", "p-3"} {
		e.pod(pod, "ledger")
	}
	e.createGroup("ledger", func(group *v1.ElectionGroup) {
		withShortWaits(group)
		withService(group)
	}, "p-0", "p-1", "p-2")
	e.awaitAdopted("ledger", 0, "p-0", "p-1", "p-2")
	e.electAndAwait("ledger", "p-2", 7)
	e.awaitRole("p-2", "ledger", v1.RoleCoordinator)

	version := e.version("ledger")
	e.edit("ledger", func(group *v1.ElectionGroup) {
		group.Spec.Members = []v1.Member{{Pod: "p-3", Priority: 40}, {Pod: "p-1", Priority: 30}, {Pod: "p-2", Priority: 20}}
		group.Spec.Service.Name = "ledger-other"
	})
	e.awaitAdopted("ledger", version, "p-1", "p-2", "p-3")
	e.eventually("p-0 has left and the list has settled", func() bool {
		_, in := e.agents["p-0"].Report("ledger")
		return !in && e.group("ledger").Status.Protocol.MemberList.State == v1.ListSettled
	})
	e.electAndAwait("ledger", "p-3", 9)
}

// dump returns what remains of all writes, without times and versions, which follow the clock.
func (e *env) dump() string {
	e.t.Helper()
	var text strings.Builder
	add := func(what string, values ...any) { fmt.Fprintf(&text, "%s: %+v\n", what, values) }
	status := e.group("ledger").Status
	for _, c := range status.Conditions {
		add(c.Type, c.Status, c.ObservedGeneration, c.Reason, c.Message)
	}
	for i := range status.Processes {
		row := &status.Processes[i]
		add(row.Pod, row.Status, row.Priority, row.Reason, row.Message)
	}
	for _, t := range status.History {
		add("tenure", t.Number, t.Pod, t.Term, t.EndReason)
	}
	if list := status.Protocol.MemberList; list != nil {
		add("list", list.State, list.Members, list.Departed, list.LeaseMillis)
	}
	add("status", status.ObservedGeneration, status.Term, status.Coordinator != nil && status.Coordinator.Pod == "p-3")
	var services corev1.ServiceList
	e.list(&services)
	for i := range services.Items {
		service := &services.Items[i]
		add("Service "+service.Name, service.Spec.Ports, service.Labels, e.endpoint(service.Name) == e.ip("p-3"))
	}
	var pods corev1.PodList
	e.list(&pods)
	for i := range pods.Items {
		add("pod "+pods.Items[i].Name, pods.Items[i].Labels)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(e.agents)) {
		report, in := e.agents[name].Report("ledger")
		add("agent "+name, in, report.Coordinator, report.Term, report.Eligible,
			int64(report.Version) == status.Protocol.MemberList.Version)
	}
	return text.String()
}

// events returns the operator's events. The API server creates others.
func (e *env) events() []string {
	e.t.Helper()
	var events eventsv1.EventList
	e.list(&events)
	var notes []string
	for _, event := range events.Items {
		if event.ReportingController != "conclave.dev/manager" {
			continue
		}
		notes = append(notes, event.Type+" "+event.Reason+" "+event.Note)
	}
	return sorted(notes)
}

func sorted(words []string) []string {
	slices.Sort(words)
	return words
}

func (e *env) list(objects client.ObjectList, options ...client.ListOption) {
	e.t.Helper()
	must.Succeed(e.t, e.client.List(e.t.Context(), objects, append(options, client.InNamespace(e.namespace))...))
}

// awaitDump waits until the state is the wanted one.
func (e *env) awaitDump(want string) {
	e.t.Helper()
	timeout := time.After(testwait.Limit)
	for {
		got := e.dump()
		if got == want {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-timeout:
			e.t.Fatalf("got another final state than an undisturbed run:\n%s\nwant\n%s", got, want)
		}
	}
}

// runUndisturbed runs the scenario with one operator, and returns the final state, the events, and the writes.
func runUndisturbed(t *testing.T) (final string, events, writes []string) {
	t.Helper()
	e := newSequentialEnv(t)
	o := e.startOperator(func(o *operator) { o.debounce = 20 * time.Millisecond })
	e.runScenario()
	e.awaitRole("p-3", "ledger", v1.RoleCoordinator)
	e.awaitRole("p-0", "ledger", "")
	e.eventually("the other Service points at p-3",
		func() bool { return e.endpoint("ledger-other") == e.ip("p-3") && e.endpoint("ledger-leader") == "" })
	e.eventually("both elections have an event", func() bool { return len(e.events()) == 2 })
	e.awaitQuiet(o)
	return e.dump(), e.events(), o.written()
}

// awaitQuiet waits until the operator has written nothing for a while.
func (e *env) awaitQuiet(o *operator) {
	e.t.Helper()
	const quiet = 25
	count, same := -1, 0
	e.eventually("the operator writes nothing more", func() bool {
		if n := len(o.written()); n != count {
			count, same = n, 0
		} else {
			same++
		}
		return same > quiet
	})
}

// After any write, the operator crashes and another one takes over without its state; or any write fails; or it
// succeeds and the response is lost. The final state is the same, and no event is written twice.
func TestFaultAtEachWrite(t *testing.T) {
	need.Complete(t)
	final, events, writes := runUndisturbed(t)
	t.Logf("writes of an undisturbed run: %s", strings.Join(writes, ", "))
	for n := 1; n <= len(writes); n++ {
		for fault, inject := range map[string]func(*operator){
			"crash after write": func(o *operator) { o.lastWrite = n },
			"write fails":       func(o *operator) { o.failedWrite = n },
			"response lost":     func(o *operator) { o.lostResponse = n },
		} {
			t.Run(fmt.Sprintf("%s %d %s", fault, n, writes[n-1]), func(t *testing.T) {
				e := newSequentialEnv(t)
				fast := func(o *operator) { o.debounce = 20 * time.Millisecond }
				first := e.startOperator(fast, inject)
				replaced := make(chan struct{})
				go func() {
					defer close(replaced)
					<-first.done
					if t.Context().Err() == nil {
						e.startOperator(fast)
					}
				}()
				e.runScenario()
				e.awaitDump(final)
				left := slices.Clone(events)
				for _, event := range e.events() {
					at := slices.Index(left, event)
					if at < 0 {
						t.Fatalf("got event %q, of which none is left of %q", event, events)
					}
					left = slices.Delete(left, at, at+1)
				}
				if fault == "crash after write" {
					first.stop() // It may have needed fewer writes than the undisturbed one.
					<-replaced
				}
			})
		}
	}
}
