package streams_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/controllers/streams"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// stand is an operator's streams, and where its agents are.
type stand struct {
	*streams.Streams
	t        testing.TB
	wardrobe *fakeagent.CertificateFactory
	network  fakeagent.Network

	told chan struct{}
	mu   sync.Mutex
	// news are all that there were; broken are the pods whose agents weren't
	// connected at one of them.
	news   []string
	broken map[string]bool
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{wardrobe: newWardrobe(t)}
	return s.start(t, streams.Options{Credentials: s.wardrobe, Dial: s.network.Dial, Log: logr.Discard()})
}

func newWardrobe(t testing.TB) *fakeagent.CertificateFactory {
	t.Helper()
	wardrobe, err := fakeagent.NewCertificateFactory()
	if err != nil {
		t.Fatal(err)
	}
	return wardrobe
}

func newStandWith(t testing.TB, options streams.Options) *stand {
	t.Helper()
	return (&stand{}).start(t, options)
}

func (s *stand) start(t testing.TB, options streams.Options) *stand {
	t.Helper()
	options.Changed = s.hear
	s.t, s.told, s.broken, s.Streams = t, make(chan struct{}, 1), map[string]bool{}, streams.New(options)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Start(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

func (s *stand) hear(pod types.NamespacedName, group string) {
	line, _ := s.Connection(pod)
	s.mu.Lock()
	s.news = append(s.news, pod.Name+"/"+group)
	s.broken[pod.Name] = s.broken[pod.Name] || !line.Connected && group == ""
	s.mu.Unlock()
	select {
	case s.told <- struct{}{}:
	default:
	}
}

// await waits for a condition, which is looked at whenever there is news.
func (s *stand) await(what string, holds func() bool) {
	s.t.Helper()
	late := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-s.told:
		case <-time.After(5 * time.Millisecond):
		case <-late:
			s.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// agent is one that doesn't run yet.
func (s *stand) agent(pod, ip string, groups ...string) *fakeagent.Agent {
	s.t.Helper()
	a, err := fakeagent.New(fakeagent.Identity{
		Namespace: "bank", Pod: pod, Groups: groups, Address: ip + ":7375", Network: &s.network,
	}, s.wardrobe)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.stop(a) })
	return a
}

func (s *stand) run(a *fakeagent.Agent) {
	s.t.Helper()
	if err := a.Run(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) stop(a *fakeagent.Agent) {
	s.t.Helper()
	if err := a.Stop(); err != nil {
		s.t.Error(err)
	}
}

// say has an agent report what it was given.
func say(a *fakeagent.Agent, report control.Report) {
	a.ChangeReport(report.Group, func(r *control.Report) {
		report.Pod = r.Pod
		*r = report
	})
}

func named(pod string) types.NamespacedName {
	return types.NamespacedName{Namespace: "bank", Name: pod}
}

func (s *stand) follow(pod, uid, ip string) {
	s.Follow(streams.Agent{Pod: named(pod), UID: types.UID(uid), Address: ip + ":7375"}, 0)
}

func (s *stand) connected(pod string) func() bool {
	return func() bool {
		line, ok := s.Connection(named(pod))
		return ok && line.Connected
	}
}

func (s *stand) says(group, pod string, like func(control.Report) bool) func() bool {
	return func() bool {
		voice, ok := s.Reports(named(group))[pod]
		return ok && like(*voice.Report)
	}
}

func TestReportsAreHeard(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger", "audit")
	say(a, control.Report{Group: "ledger", UID: "u", Version: 1, Coordinator: "ledger-2", Term: 7})
	s.run(a)
	s.follow("ledger-0", "pod-uid", "10.0.0.1")
	s.await("it is connected", s.connected("ledger-0"))
	if voice := s.Reports(named("ledger"))["ledger-0"]; voice.Report == nil || voice.Report.Coordinator != "ledger-2" || voice.UID != "pod-uid" {
		t.Fatalf("who is connected has said everything, but this was heard: %+v", voice)
	}
	a.ChangeReport("ledger", func(r *control.Report) { r.Coordinator, r.Term = "ledger-1", 8 })
	s.await("the change is heard", s.says("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 8 }))
	voice := s.Reports(named("ledger"))["ledger-0"]
	if voice.Lost.IsZero() || voice.Named.IsZero() || !voice.Adopted.Before(voice.Named) {
		t.Errorf("the list is older than the coordinator, and there was another one: %+v", voice)
	}
	a.Leave("ledger")
	s.await("it has left", func() bool { return len(s.Reports(named("ledger"))) == 0 })
}

// Nobody speaks for another pod or for a group that it has no certificate for.
func TestOnlyCertifiedWordsCount(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger")
	say(a, control.Report{Group: "audit", UID: "u"})
	say(a, control.Report{Group: "ledger", UID: "u"})
	s.run(a)
	s.follow("ledger-0", "1", "10.0.0.1")
	s.follow("ledger-1", "2", "10.0.0.1")
	s.await("it is connected", s.connected("ledger-0"))
	if heard := s.Reports(named("audit")); len(heard) != 0 {
		t.Errorf("its certificate isn't for the group audit, but it was heard there: %v", heard)
	}
	if line, _ := s.Connection(named("ledger-0")); !line.Accepts("ledger") || line.Accepts("audit") {
		t.Errorf("it is in the group ledger, and in no other: %+v", line)
	}
	s.await("the other pod isn't believed", func() bool {
		line, _ := s.Connection(named("ledger-1"))
		return line.Problem == "its certificate is for conclave://bank/ledger/ledger-0, and not for pod bank/ledger-1"
	})
}

func TestStreamComesBack(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger", "audit")
	say(a, control.Report{Group: "ledger", UID: "u", Term: 1})
	say(a, control.Report{Group: "audit", UID: "u", Term: 1})
	s.run(a)
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("it is connected", s.connected("ledger-0"))
	s.stop(a)
	s.await("it is known why it isn't", func() bool {
		line, _ := s.Connection(named("ledger-0"))
		return !line.Connected && line.Problem == "connection refused"
	})
	if s.Reports(named("ledger"))["ledger-0"].Report == nil {
		t.Error("what was last heard is kept while the connection is away")
	}
	a.Leave("audit")
	s.run(a)
	s.await("it is connected again", s.connected("ledger-0"))
	s.await("what it doesn't say any more is forgotten", func() bool { return len(s.Reports(named("audit"))) == 0 })
	if got := s.Groups(named("ledger-0")); !slices.Equal(got, []string{"ledger"}) {
		t.Errorf("it reports ledger alone, not %v", got)
	}
}

// A connection that ends where the agent goes on is no news, if it has lasted.
func TestStreamIsRenewedInSilence(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger")
	say(a, control.Report{Group: "ledger", UID: "u", Term: 1})
	s.run(a)
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("it is connected", s.connected("ledger-0"))
	line, _ := s.Connection(named("ledger-0"))
	s.await("it has been for a while", func() bool { return time.Since(line.Since) > 2*time.Second })
	a.CloseStreams()
	s.await("it is again", func() bool {
		now, _ := s.Connection(named("ledger-0"))
		return now.Connected && now.Since != line.Since
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken["ledger-0"] {
		t.Error("nobody should have been told that it wasn't")
	}
}

// A new pod of the name is another one: nothing that the old one said is about it.
func TestNewPodIsAnotherAgent(t *testing.T) {
	s := newStand(t)
	old := s.agent("ledger-0", "10.0.0.1", "ledger")
	say(old, control.Report{Group: "ledger", UID: "u", Term: 1})
	s.run(old)
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("it is connected", s.connected("ledger-0"))
	s.follow("ledger-0", "2", "10.0.0.2")
	if heard := s.Reports(named("ledger")); len(heard) != 0 {
		t.Errorf("the new pod has said nothing yet: %v", heard)
	}
	next := s.agent("ledger-0", "10.0.0.2", "ledger")
	say(next, control.Report{Group: "ledger", UID: "u", Term: 2})
	s.run(next)
	s.await("the new one is heard", s.says("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 2 }))
	s.await("the old one isn't asked any more", func() bool { return old.Streams() == 0 })
	s.Forget(named("ledger-0"))
	s.await("nobody is", func() bool { return next.Streams() == 0 })
	if _, ok := s.Connection(named("ledger-0")); ok || len(s.Reports(named("ledger"))) != 0 {
		t.Error("a pod that is gone is forgotten")
	}
}

func TestErrands(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger")
	failures := 2
	a.Refuse(func(call fakeagent.Call) int {
		if call.Method == http.MethodDelete {
			return http.StatusConflict
		}
		if failures--; failures >= 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	})
	s.Send(named("ledger-0"), streams.LeaveGroup("ledger", "nobody is connected"))
	s.run(a)
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("it is connected", s.connected("ledger-0"))
	document := streams.PushDocument("ledger", "u", "4", []byte(`{"uid":"u"}`))
	s.Send(named("ledger-0"), document)
	s.Send(named("ledger-0"), document)
	s.await("it has accepted at the third attempt", func() bool { return len(a.Calls()) == 3 })
	s.Send(named("ledger-0"), document)
	s.Send(named("ledger-0"), streams.SetEligible("ledger", false))
	s.await("it was told to stand no more", func() bool { return len(a.Calls()) == 4 })
	s.Send(named("ledger-0"), streams.LeaveGroup("ledger", "u"))
	s.await("it has refused to leave", func() bool { return len(a.Calls()) == 5 })
	want := fakeagent.Call{Method: http.MethodPut, Path: "/v1/groups/ledger", Body: `{"uid":"u"}`}
	if got := a.Calls(); got[0] != want || got[2] != want {
		t.Errorf("it should have been told %v, not %v", want, got)
	}
	if got := a.Calls()[3]; got.Path != "/v1/groups/ledger/eligibility" || got.Body != `{"eligible":false}` {
		t.Errorf("it was told %v", got)
	}
	if got := a.Calls()[4]; got.Path != "/v1/groups/ledger?uid=u" {
		t.Errorf("it was told %v", got)
	}
}
