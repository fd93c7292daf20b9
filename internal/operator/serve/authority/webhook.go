package authority

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// publishRetryDelay is the delay before a failed update is retried.
const publishRetryDelay = time.Second

// WebhookPublisher writes the CA bundle into the webhook configuration, so that the API server trusts the webhook's
// certificate. Each replica of the manager has one. It writes only if the configuration has another bundle.
type WebhookPublisher struct {
	Store *Store
	// Client reads from the API server, not from a cache.
	Client client.Client
	// Name is the name of the MutatingWebhookConfiguration.
	Name string
	// Written receives a value whenever somebody has written the configuration. For
	// example, a user may have applied the manifest again, without a CA bundle.
	Written <-chan struct{}
	Log     *slog.Logger

	published atomic.Bool
}

// NeedLeaderElection returns false: during an update of the manager, the leader may be a replica that is about to stop.
func (*WebhookPublisher) NeedLeaderElection() bool { return false }

// Ready returns an error until this replica has published the CA bundle once.
func (p *WebhookPublisher) Ready() error {
	if !p.published.Load() {
		return errors.New("the CA bundle isn't in the webhook configuration yet")
	}
	return nil
}

// Start publishes the CA bundle until the context ends.
func (p *WebhookPublisher) Start(ctx context.Context) error {
	lastError := ""
	for {
		changed := p.Store.Changed()
		var retry <-chan time.Time
		if err := p.publish(ctx); err != nil {
			if err.Error() != lastError && ctx.Err() == nil {
				p.Log.Warn("cannot publish CA bundle; retrying", "error", err)
			}
			lastError, retry = err.Error(), time.After(publishRetryDelay)
		} else {
			lastError = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-p.Written:
		case <-retry:
		}
	}
}

// publish writes the CA bundle if the configuration has another one. It refreshes the Store before it writes, so that a
// replica with an outdated view doesn't revert the update of another replica.
func (p *WebhookPublisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var config admissionregistrationv1.MutatingWebhookConfiguration
	if err := p.Client.Get(ctx, client.ObjectKey{Name: p.Name}, &config); err != nil {
		return fmt.Errorf("cannot read webhook configuration: %w", err)
	}
	bundle, err := p.Store.Bundle(ctx)
	if err != nil {
		return err
	}
	if !trusts(&config, bundle) {
		if err := p.Store.Refresh(ctx); err != nil {
			return err
		}
		if bundle, err = p.Store.Bundle(ctx); err != nil {
			return err
		}
	}
	if !trusts(&config, bundle) {
		before := config.DeepCopy()
		for i := range config.Webhooks {
			config.Webhooks[i].ClientConfig.CABundle = bundle
		}
		// The API server rejects the patch if the configuration has changed in the meantime.
		patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
		if err := p.Client.Patch(ctx, &config, patch); err != nil {
			return fmt.Errorf("cannot write webhook configuration: %w", err)
		}
		p.Log.Info("wrote CA bundle into webhook configuration", "name", p.Name)
	}
	p.published.Store(true)
	return nil
}

// trusts reports whether all webhooks have this CA bundle.
func trusts(config *admissionregistrationv1.MutatingWebhookConfiguration, bundle []byte) bool {
	return !slices.ContainsFunc(config.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
		return !bytes.Equal(w.ClientConfig.CABundle, bundle)
	})
}
