package webhook_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/serve/webhook"
)

func TestResultsAreCounted(t *testing.T) {
	var settingsErr error
	var counted []webhook.Result
	injector := &webhook.Injector{
		Log:      slog.New(slog.DiscardHandler),
		Settings: func(context.Context) (inject.Settings, error) { return settings, settingsErr },
		Count:    func(result webhook.Result) { counted = append(counted, result) },
	}
	expect := func(want ...webhook.Result) {
		t.Helper()
		if !slices.Equal(counted, want) {
			t.Errorf("got %q, want %q", counted, want)
		}
		counted = nil
	}
	injector.Handle(t.Context(), request(podOf("in", optedIn, ledger)))
	expect(webhook.Injected)
	injector.Handle(t.Context(), request(podOf("out", nil, ledger)))
	expect(webhook.Unchanged)
	invalid := podOf("invalid", optedIn, map[string]string{v1.AnnotationGroups: "ledger/x"})
	injector.Handle(t.Context(), request(invalid))
	expect(webhook.Refused)
	settingsErr = errors.New("no CA bundle")
	injector.Handle(t.Context(), request(podOf("in", optedIn, ledger)))
	expect(webhook.Failed)
	dryRun := request(invalid)
	dryRun.DryRun = new(true)
	injector.Handle(t.Context(), dryRun)
	expect()
}
