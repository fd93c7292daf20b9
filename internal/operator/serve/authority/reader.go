package authority

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// MetricsSecretName is the name of the Secret with the credentials of Prometheus: a
// certificate that agents accept from a reader of metrics, its key, and the CA bundle.
const MetricsSecretName = "conclave-metrics"

// The keys of that Secret, as in a Secret of type kubernetes.io/tls.
const (
	MetricsCAKey   = "ca.crt"
	MetricsCertKey = corev1.TLSCertKey
	MetricsKeyKey  = corev1.TLSPrivateKeyKey
)

// readerValidity is longer than that of other certificates: the operator writes the Secret
// once in twenty days, not three times a day. Who has the key may only read metrics.
const readerValidity = 30 * 24 * time.Hour

// MetricsPublisher writes the Secret MetricsSecretName. Each replica of the manager has one.
// It writes only if the certificate or the CA bundle in the Secret is out of date. Nothing
// else depends on it: if it fails, Prometheus can't scrape.
type MetricsPublisher struct {
	Store *Store
	// Client reads from the API server, not from a cache.
	Client    client.Client
	Namespace string
	Log       *slog.Logger
}

// NeedLeaderElection returns false: credentials must not expire while there is no leader.
func (*MetricsPublisher) NeedLeaderElection() bool { return false }

// Start publishes the credentials until the context ends.
func (p *MetricsPublisher) Start(ctx context.Context) error {
	for {
		changed := p.Store.Changed()
		wait := refreshInterval/2 + rand.N(refreshInterval)
		if err := p.publish(ctx); apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			wait = publishRetryDelay // Another replica has written it.
		} else if err != nil && ctx.Err() == nil {
			p.Log.Warn("cannot write the credentials for metrics; retrying in a minute", "error", err)
			wait = time.Minute
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(wait):
		}
	}
}

// publish writes the Secret if it is out of date. It refreshes the Store before it writes, so
// that a replica with an outdated view doesn't revert the update of another replica.
func (p *MetricsPublisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: MetricsSecretName}}
	err := p.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	v, err := p.Store.usableView(ctx)
	if err != nil || p.Store.isCurrentReader(v, secret) {
		return err
	}
	if err := p.Store.Refresh(ctx); err != nil {
		return err
	}
	if v, err = p.Store.usableView(ctx); err != nil || p.Store.isCurrentReader(v, secret) {
		return err
	}
	pair, err := v.signer.Issue(identity.Names{control.MetricsReader}, readerValidity)
	if err != nil {
		return err
	}
	secret.Data = map[string][]byte{MetricsCAKey: v.state.Bundle(), MetricsCertKey: pair.Cert, MetricsKeyKey: pair.Key}
	if missing {
		err = p.Client.Create(ctx, secret)
	} else {
		err = p.Client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", p.Namespace, MetricsSecretName, err)
	}
	p.Log.Info("wrote the credentials for metrics", "secret", MetricsSecretName)
	return nil
}

// isCurrentReader reports whether a Secret has the CA bundle of a view, and a certificate that
// the signing CA has issued and of which more than a third of its validity is left.
func (s *Store) isCurrentReader(v view, secret *corev1.Secret) bool {
	pair := identity.Pair{Cert: secret.Data[MetricsCertKey], Key: secret.Data[MetricsKeyKey]}
	if string(secret.Data[MetricsCAKey]) != string(v.state.Bundle()) {
		return false
	}
	// Not the bundle: agents stop to trust the former CA.
	names, err := identity.Verify(pair, v.state.Signing.Cert)
	if err != nil || !names.Intersects(identity.Names{control.MetricsReader}) {
		return false
	}
	block, _ := pem.Decode(pair.Cert)
	leaf, err := x509.ParseCertificate(block.Bytes)
	return err == nil && leaf.NotAfter.Sub(s.clock()) > readerValidity/3
}
