package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const namespace = "conclave-system"

var discard = slog.New(slog.DiscardHandler)

func mustOpen(t *testing.T, c client.Client, clock func() time.Time) *Store {
	t.Helper()
	s, err := open(t.Context(), c, namespace, discard, defaultSchedule, clock, Anyway)
	must.Succeed(t, err)
	return s
}

func mustBundle(t *testing.T, s *Store) string {
	t.Helper()
	b, err := s.Bundle(t.Context())
	must.Succeed(t, err)
	return string(b)
}

func TestReplicasShareOneCA(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	a, b := mustOpen(t, c, time.Now), mustOpen(t, c, time.Now)
	expect.Equalf(t, mustBundle(t, a), mustBundle(t, b), "the replicas have different CA bundles")
	// A running replica restores a Secret that was deleted by mistake.
	before := mustBundle(t, a)
	must.Succeed(t,
		c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName}}))
	must.Succeed(t, a.Refresh(t.Context()))
	expect.Equalf(t, mustBundle(t, mustOpen(t, c, time.Now)), before,
		"the replica created another CA instead of restoring the known one")
}

func TestInvalidSecretIsNotReplaced(t *testing.T) {
	for name, change := range map[string]func(map[string][]byte){
		"no key":              func(d map[string][]byte) { delete(d, "ca.key") },
		"invalid date":        func(d map[string][]byte) { d["since"] = []byte("yesterday") },
		"truncated former CA": func(d map[string][]byte) { d["former.crt"] = d["ca.crt"][:40] },
		"next CA without a key": func(d map[string][]byte) {
			d["next.crt"] = d["ca.crt"]
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().Build()
			mustOpen(t, c, time.Now)
			var secret corev1.Secret
			key := client.ObjectKey{Namespace: namespace, Name: SecretName}
			must.Succeed(t, c.Get(t.Context(), key, &secret))
			change(secret.Data)
			must.Succeed(t, c.Update(t.Context(), &secret))
			_, err := Open(t.Context(), c, namespace, discard, Anyway)
			expect.ErrorContainsf(t, err, "restore the Secret, or replace it", "damaged Secret")
		})
	}
}

// failingClient fails reads while err is set.
type failingClient struct {
	client.Client
	err error
}

func (f *failingClient) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	opts ...client.GetOption,
) error {
	if f.err != nil {
		return f.err
	}
	return f.Client.Get(ctx, key, o, opts...)
}

func TestViewIsUsedForHalfADay(t *testing.T) {
	now := time.Now()
	c := &failingClient{Client: fake.NewClientBuilder().Build()}
	s := mustOpen(t, c, func() time.Time { return now })
	c.err = errors.New("the API server is unreachable")
	now = now.Add(11 * time.Hour)
	mustBundle(t, s)
	now = now.Add(2 * time.Hour)
	if _, err := s.Bundle(t.Context()); !errors.Is(err, c.err) {
		t.Errorf("Bundle with a view that is too old: got error %v, want %v", err, c.err)
	}
	if _, err := s.NewServerCertificate("localhost"); err == nil {
		t.Error("a certificate was issued with a view that is too old")
	}
	c.err = nil
	mustBundle(t, s)
}

// handshake connects the operator to an agent. It returns the names by which the agent identifies the operator.
func handshake(operator *OperatorCertificate, agent *identity.InMemory) (identity.Names, error) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	server := tls.Server(b, agent.Server())
	failed := make(chan error, 1)
	go func() { failed <- server.Handshake() }()
	if err := tls.Client(a, operator.Client()).Handshake(); err != nil {
		return nil, err
	}
	if err := <-failed; err != nil {
		return nil, err
	}
	return identity.PeerNames(server.ConnectionState())
}

func TestCertificatesAreRenewedForYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, fake.NewClientBuilder().Build(), time.Now)
		certificate, err := s.NewServerCertificate("a.svc", "b.svc")
		must.Succeed(t, err)
		operator, err := s.NewOperatorCertificate()
		must.Succeed(t, err)
		issuers := map[string]bool{}
		for end := time.Now().AddDate(2, 0, 0); time.Now().Before(end); {
			time.Sleep(3 * time.Hour)
			must.Succeed(t, s.Refresh(t.Context()))
			cert, err := certificate.GetCertificate(nil)
			must.Succeed(t, err)
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM([]byte(mustBundle(t, s)))
			for _, host := range []string{"a.svc", "b.svc"} {
				if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
					t.Fatal(time.Now(), err)
				}
			}
			if left := min(time.Until(cert.Leaf.NotAfter), time.Until(operator.NotAfter())); left < 12*time.Hour {
				t.Fatalf("a certificate expires in %s, want at least 12h", left)
			}
			issuers[string(cert.Leaf.AuthorityKeyId)] = true
		}
		expect.Equalf(t, len(issuers), 3, "certificates of CAs in two years")
		pair, err := s.currentView().signer.Issue(identity.Names{{Domain: "bank", Group: "ledger", Member: "ledger-0"}},
			time.Hour)
		must.Succeed(t, err)
		agent, err := identity.NewInMemory(pair, []byte(mustBundle(t, s)))
		must.Succeed(t, err)
		if names, err := handshake(operator, agent); err != nil || !names.Has(control.Operator) {
			t.Errorf("got names %s and error %v, want %s", names, err, control.Operator)
		}
	})
}

func TestOutdatedReplicaDoesNotRevertTheBundle(t *testing.T) {
	config := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "conclave"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "inject.conclave.dev", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new(
				"https://localhost")}},
		},
	}
	c := fake.NewClientBuilder().WithObjects(config).Build()
	now := time.Now()
	clock := func() time.Time { return now }
	outdated := mustOpen(t, c, clock)
	old := mustBundle(t, outdated)
	publish := func(s *Store) string {
		t.Helper()
		p := &WebhookPublisher{Store: s, Client: c, Name: "conclave", Log: discard}
		if p.Ready() == nil {
			t.Error("Ready returned nil before the bundle was published")
		}
		if err := p.publish(t.Context()); err != nil || p.Ready() != nil {
			t.Fatal(err, p.Ready())
		}
		var found admissionregistrationv1.MutatingWebhookConfiguration
		must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Name: "conclave"}, &found))
		return string(found.Webhooks[0].ClientConfig.CABundle)
	}
	expect.Equalf(t, publish(outdated), old, "bundle")
	changed := outdated.Changed()
	// Another replica, whose clock is ahead, announces the next CA.
	ahead := mustOpen(t, c, func() time.Time { return time.Now().Add(CAValidity - 20*24*time.Hour) })
	both := mustBundle(t, ahead)
	if got := publish(ahead); got != both || both == old {
		t.Errorf("got bundle %q, want %q, which must differ from %q", got, both, old)
	}
	select {
	case <-changed:
		t.Error("the outdated replica reported a change before it read the Secret")
	default:
	}
	expect.Equalf(t, publish(outdated), both, "announced CA is missing: bundle")
	<-changed
}

// annotate sets the annotation that requests a rotation.
func annotate(t *testing.T, c client.Client, value string) {
	t.Helper()
	var secret corev1.Secret
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: SecretName}, &secret))
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, RotateAnnotation, value)
	must.Succeed(t, c.Update(t.Context(), &secret))
}

// TestRotationOnRequest requests a rotation, and another one while the first one takes its steps.
func TestRotationOnRequest(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	now := time.Now()
	s := mustOpen(t, c, func() time.Time { return now })
	var steps []string
	refresh := func() {
		t.Helper()
		before := s.currentView().state
		must.Succeed(t, s.Refresh(t.Context()))
		after := s.currentView().state
		if before.Former.exists() && !after.Former.exists() {
			steps = append(steps, "retire") // The next rotation may begin at the same time.
		}
		if after.Former.exists() && !before.Former.exists() {
			steps = append(steps, "promote")
		}
		if after.Next.exists() && !before.Next.exists() {
			steps = append(steps, "announce")
		}
	}
	annotate(t, c, "true") // Only "now" requests a rotation.
	refresh()
	if len(steps) > 0 {
		t.Fatalf("got steps %v of a rotation that nobody requested", steps)
	}
	annotate(t, c, RotateNow)
	refresh()
	annotate(t, c, RotateNow)
	for range 60 * 24 {
		now = now.Add(time.Hour)
		refresh()
	}
	expect.EqualSlicesf(t, steps, []string{"announce", "promote", "retire", "announce", "promote", "retire"}, "steps")
	var secret corev1.Secret
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: SecretName}, &secret))
	if value, found := secret.Annotations[RotateAnnotation]; found {
		t.Errorf("got annotation %q after the rotations, want none", value)
	}
}

// A replica that restores a deleted Secret doesn't repeat a request that has begun.
func TestRestoredSecretRequestsNothing(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	s := mustOpen(t, c, time.Now)
	annotate(t, c, RotateNow)
	must.Succeed(t, s.Refresh(t.Context()))
	must.Succeed(t,
		c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName}}))
	must.Succeed(t, s.Refresh(t.Context()))
	if state := s.currentView().state; state.Requested || !state.Next.exists() {
		t.Errorf("got request %t and next CA %t, want the rotation as before, and no request",
			state.Requested, state.Next.exists())
	}
}
