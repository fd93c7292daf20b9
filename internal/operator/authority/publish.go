package authority

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// publishAgain is how long a failure waits.
const publishAgain = time.Second

// Publisher tells the API server which authorities the webhook's certificate is
// from. Each replica has one; it writes only what is missing.
type Publisher struct {
	Keeper *Keeper
	// Client reads from the API server itself.
	Client client.Client
	// Name is that of the MutatingWebhookConfiguration.
	Name string
	// Written tells that somebody has written it: it may have been applied anew,
	// without the authorities.
	Written <-chan struct{}
	Log     *slog.Logger

	published atomic.Bool
}

// NeedLeaderElection is false: the leader may be one that is being replaced.
func (*Publisher) NeedLeaderElection() bool { return false }

// Published says if the API server doesn't know the webhook yet.
func (p *Publisher) Published() error {
	if !p.published.Load() {
		return errors.New("the webhook's configuration doesn't have the authorities yet")
	}
	return nil
}

// Start publishes until the context ends.
func (p *Publisher) Start(ctx context.Context) error {
	told := ""
	for {
		changed := p.Keeper.Changed()
		var again <-chan time.Time
		if err := p.publish(ctx); err != nil {
			if err.Error() != told && ctx.Err() == nil {
				p.Log.Warn("the authorities can't be published", "error", err)
			}
			told, again = err.Error(), time.After(publishAgain)
		} else {
			told = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-p.Written:
		case <-again:
		}
	}
}

// publish compares what the configuration has with what it should have, and
// reads the Secret again before it writes: a replica that is behind mustn't undo
// what another one has done.
func (p *Publisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var config admissionregistrationv1.MutatingWebhookConfiguration
	if err := p.Client.Get(ctx, client.ObjectKey{Name: p.Name}, &config); err != nil {
		return fmt.Errorf("read the webhook's configuration: %w", err)
	}
	bundle, err := p.Keeper.Bundle(ctx)
	if err != nil {
		return err
	}
	if len(stale(&config, bundle)) > 0 {
		if err := p.Keeper.Refresh(ctx); err != nil {
			return err
		}
		if bundle, err = p.Keeper.Bundle(ctx); err != nil {
			return err
		}
	}
	if wrong := stale(&config, bundle); len(wrong) > 0 {
		patch, err := bundlePatch(&config, wrong, bundle)
		if err != nil {
			return err
		}
		if err := p.Client.Patch(ctx, &config, client.RawPatch(types.JSONPatchType, patch)); err != nil {
			return fmt.Errorf("write the webhook's configuration: %w", err)
		}
		p.Log.Info("the webhook's configuration has been given the authorities", "name", p.Name)
	}
	p.published.Store(true)
	return nil
}

// stale are the webhooks, by index, whose authorities are others.
func stale(config *admissionregistrationv1.MutatingWebhookConfiguration, bundle []byte) []int {
	var wrong []int
	for i, webhook := range config.Webhooks {
		if !bytes.Equal(webhook.ClientConfig.CABundle, bundle) {
			wrong = append(wrong, i)
		}
	}
	return wrong
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// bundlePatch changes nothing else, and nothing at all if somebody was faster.
func bundlePatch(config *admissionregistrationv1.MutatingWebhookConfiguration, wrong []int, bundle []byte) ([]byte, error) {
	patch := []operation{{"test", "/metadata/resourceVersion", config.ResourceVersion}}
	for _, i := range wrong {
		patch = append(patch, operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), bundle})
	}
	return json.Marshal(patch)
}
