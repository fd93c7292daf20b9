package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"
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
)

const namespace = "conclave-system"

var silent = slog.New(slog.DiscardHandler)

func opened(t *testing.T, c client.Client, clock func() time.Time) *Keeper {
	t.Helper()
	k, err := open(t.Context(), c, namespace, silent, usual, clock)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func bundle(t *testing.T, k *Keeper) string {
	t.Helper()
	b, err := k.Bundle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReplicasShareOneAuthority(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	a, b := opened(t, c, time.Now), opened(t, c, time.Now)
	if bundle(t, a) != bundle(t, b) {
		t.Error("each has made one")
	}
	// Whoever deletes the Secret by mistake loses nothing.
	before := bundle(t, a)
	if err := c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName}}); err != nil {
		t.Fatal(err)
	}
	if err := a.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if bundle(t, opened(t, c, time.Now)) != before {
		t.Error("another authority was made in the place of one that is known")
	}
}

func TestAStrangeSecretIsLeftAlone(t *testing.T) {
	for name, change := range map[string]func(map[string][]byte){
		"no key":        func(d map[string][]byte) { delete(d, "ca.key") },
		"no date":       func(d map[string][]byte) { d["since"] = []byte("yesterday") },
		"half a former": func(d map[string][]byte) { d["former.crt"] = d["ca.crt"][:40] },
		"a next one without a key": func(d map[string][]byte) {
			d["next.crt"] = d["ca.crt"]
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().Build()
			opened(t, c, time.Now)
			var secret corev1.Secret
			key := client.ObjectKey{Namespace: namespace, Name: SecretName}
			if err := c.Get(t.Context(), key, &secret); err != nil {
				t.Fatal(err)
			}
			change(secret.Data)
			if err := c.Update(t.Context(), &secret); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), c, namespace, silent)
			if err == nil || !strings.Contains(err.Error(), "restore the Secret, or delete it") {
				t.Error(err)
			}
		})
	}
}

// away is an API server that may be.
type away struct {
	client.Client
	err error
}

func (a *away) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if a.err != nil {
		return a.err
	}
	return a.Client.Get(ctx, key, o, opts...)
}

func TestWhatWasReadCountsForHalfADay(t *testing.T) {
	now := time.Now()
	c := &away{Client: fake.NewClientBuilder().Build()}
	k := opened(t, c, func() time.Time { return now })
	c.err = errors.New("the API server is away")
	now = now.Add(11 * time.Hour)
	bundle(t, k)
	now = now.Add(2 * time.Hour)
	if _, err := k.Bundle(t.Context()); !errors.Is(err, c.err) {
		t.Error("authorities that may have changed are given out:", err)
	}
	if _, err := k.Serving("localhost"); err == nil {
		t.Error("a certificate is made by an authority that may have changed")
	}
	c.err = nil
	bundle(t, k)
}

// handshake has the operator dial an agent, and returns what the agent learns.
func handshake(operator *Operator, agent *identity.InMemory) (identity.Names, error) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	dialled := tls.Server(b, agent.Server())
	failed := make(chan error, 1)
	go func() { failed <- dialled.Handshake() }()
	if err := tls.Client(a, operator.Client()).Handshake(); err != nil {
		return nil, err
	}
	if err := <-failed; err != nil {
		return nil, err
	}
	return identity.PeerNames(dialled.ConnectionState())
}

func TestCertificatesAreRenewedForYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := opened(t, fake.NewClientBuilder().Build(), time.Now)
		serving, err := k.Serving("a.svc", "b.svc")
		if err != nil {
			t.Fatal(err)
		}
		operator, err := k.Operator()
		if err != nil {
			t.Fatal(err)
		}
		issuers := map[string]bool{}
		for end := time.Now().AddDate(2, 0, 0); time.Now().Before(end); {
			time.Sleep(3 * time.Hour)
			if err := k.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			cert, err := serving.Certificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM([]byte(bundle(t, k)))
			for _, host := range []string{"a.svc", "b.svc"} {
				if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
					t.Fatal(time.Now(), err)
				}
			}
			if left := min(time.Until(cert.Leaf.NotAfter), time.Until(operator.NotAfter())); left < 12*time.Hour {
				t.Fatalf("%s are left of a certificate", left)
			}
			issuers[string(cert.Leaf.AuthorityKeyId)] = true
		}
		if len(issuers) != 3 {
			t.Errorf("%d authorities have signed in two years", len(issuers))
		}
		pair, err := k.present().signer.Issue(identity.Names{{Domain: "bank", Group: "ledger", Member: "ledger-0"}}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		agent, err := identity.NewInMemory(pair, []byte(bundle(t, k)))
		if err != nil {
			t.Fatal(err)
		}
		if names, err := handshake(operator, agent); err != nil || !names.Has(control.Operator) {
			t.Errorf("an agent sees %s: %v", names, err)
		}
	})
}

func TestAReplicaThatIsBehindUndoesNothing(t *testing.T) {
	config := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "conclave"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "inject.conclave.dev", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://localhost")}},
		},
	}
	c := fake.NewClientBuilder().WithObjects(config).Build()
	now := time.Now()
	clock := func() time.Time { return now }
	behind := opened(t, c, clock)
	old := bundle(t, behind)
	publish := func(k *Keeper) string {
		t.Helper()
		p := &Publisher{Keeper: k, Client: c, Name: "conclave", Log: silent}
		if p.Published() == nil {
			t.Error("it says that it has published")
		}
		if err := p.publish(t.Context()); err != nil || p.Published() != nil {
			t.Fatal(err, p.Published())
		}
		var found admissionregistrationv1.MutatingWebhookConfiguration
		if err := c.Get(t.Context(), client.ObjectKey{Name: "conclave"}, &found); err != nil {
			t.Fatal(err)
		}
		return string(found.Webhooks[0].ClientConfig.CABundle)
	}
	if got := publish(behind); got != old {
		t.Errorf("got %q", got)
	}
	changed := behind.Changed()
	// Another one announces the next authority, by a clock that is ahead.
	ahead := opened(t, c, func() time.Time { return time.Now().Add(Valid - 20*24*time.Hour) })
	both := bundle(t, ahead)
	if got := publish(ahead); got != both || both == old {
		t.Errorf("got %q", got)
	}
	select {
	case <-changed:
		t.Error("it can't know yet")
	default:
	}
	if got := publish(behind); got != both {
		t.Errorf("the authority that was announced is gone: %q", got)
	}
	<-changed
}
