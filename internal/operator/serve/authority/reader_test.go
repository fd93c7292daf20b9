package authority

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// metricsSecret reads the credentials, and verifies them.
func metricsSecret(t *testing.T, c client.Client) *corev1.Secret {
	t.Helper()
	var secret corev1.Secret
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: MetricsSecretName}, &secret))
	pair := identity.Pair{Cert: secret.Data[MetricsCertKey], Key: secret.Data[MetricsKeyKey]}
	names, err := identity.Verify(pair, secret.Data[MetricsCAKey])
	if err != nil || len(names) != 1 || names[0] != control.MetricsReader {
		t.Fatalf("got a certificate for %s, want %s: %v", names, control.MetricsReader, err)
	}
	return &secret
}

func publishMetrics(t *testing.T, c client.Client, s *Store) {
	t.Helper()
	p := &MetricsPublisher{Store: s, Client: c, Namespace: namespace, Log: discard}
	must.Succeed(t, p.publish(t.Context()))
}

// TestMetricsCredentialsStayValid runs two replicas for 400 days, which includes a rotation of the CA.
func TestMetricsCredentialsStayValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if o.GetName() == MetricsSecretName {
					writes++
				}
				return c.Update(ctx, o, opts...)
			},
		})
		replicas := []*Store{mustOpen(t, c, time.Now), mustOpen(t, c, time.Now)}
		for range 2 * 400 {
			for _, s := range replicas {
				must.Succeed(t, s.Refresh(t.Context()))
				publishMetrics(t, c, s)
			}
			secret := metricsSecret(t, c)
			pair := identity.Pair{Cert: secret.Data[MetricsCertKey], Key: secret.Data[MetricsKeyKey]}
			for _, s := range replicas {
				// Agents trust the bundle that any replica gives them.
				_, err := identity.Verify(pair, []byte(mustBundle(t, s)))
				must.Succeed(t, err)
			}
			time.Sleep(12 * time.Hour)
		}
		if writes < 18 || writes > 26 {
			t.Errorf("got %d writes in 400 days, want one in twenty days, and one for each step of the rotation", writes)
		}
	})
}

func TestMetricsCredentialsAreRepaired(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	s := mustOpen(t, c, time.Now)
	publishMetrics(t, c, s)
	before := metricsSecret(t, c)
	publishMetrics(t, c, s)
	if after := metricsSecret(t, c); after.ResourceVersion != before.ResourceVersion {
		t.Error("the second call has written the Secret, want no write")
	}
	for name, change := range map[string]func(map[string][]byte){
		"no data":           func(d map[string][]byte) { clear(d) },
		"no key":            func(d map[string][]byte) { delete(d, MetricsKeyKey) },
		"another CA":        func(d map[string][]byte) { d[MetricsCAKey] = d[MetricsCertKey] },
		"not a certificate": func(d map[string][]byte) { d[MetricsCertKey] = []byte("none") },
	} {
		edited := metricsSecret(t, c)
		change(edited.Data)
		must.Succeed(t, c.Update(t.Context(), edited))
		publishMetrics(t, c, s)
		if got := metricsSecret(t, c); got.ResourceVersion == edited.ResourceVersion {
			t.Errorf("%s: the Secret wasn't written again", name)
		}
	}
}

// The agents' and the API server's certificates don't depend on this Secret.
func TestFailureToWriteCredentialsIsReported(t *testing.T) {
	refused := errors.New("refused")
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if o.GetName() == MetricsSecretName {
				return refused
			}
			return c.Create(ctx, o, opts...)
		},
	})
	p := &MetricsPublisher{Store: mustOpen(t, c, time.Now), Client: c, Namespace: namespace, Log: discard}
	expect.ErrorIsf(t, p.publish(t.Context()), refused, "error")
}
