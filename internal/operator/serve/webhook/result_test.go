package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/serve/webhook"
	"github.com/conclave-dev/conclave/internal/testing/expect"
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

// The cache may lack a group that was created a moment ago, or have none at all. The API server is
// asked only then: a scale-up of a pod costs no list for each pod.
func TestGroupsAreReadFromTheCacheFirst(t *testing.T) {
	lister := func(calls *int, err error, names ...string) func(context.Context, string, func([]v1.ElectionGroup)) error {
		return func(_ context.Context, _ string, use func([]v1.ElectionGroup)) error {
			*calls++
			for _, name := range names {
				group := v1.ElectionGroup{}
				group.Name, group.Spec.Members = name, []v1.Member{{Pod: "ledger-0", Priority: 1}}
				use([]v1.ElectionGroup{group})
			}
			return err
		}
	}
	for name, test := range map[string]struct {
		cached, live []string
		err          error
		want         string
		lists        int
	}{
		"the cache has the group":             {[]string{"ledger"}, []string{"ledger", "audit"}, nil, "ledger", 0},
		"the cache lacks the group":           {nil, []string{"ledger"}, nil, "ledger", 1},
		"the cache fails after its first one": {[]string{"former"}, []string{"ledger"}, errors.New("the cache hasn't been started"), "ledger", 1},
	} {
		var cached, live int
		injector := &webhook.Injector{
			Log: slog.New(slog.DiscardHandler), Settings: func(context.Context) (inject.Settings, error) { return settings, nil },
			Cached: lister(&cached, test.err, test.cached...), Groups: lister(&live, nil, test.live...),
		}
		response := injector.Handle(t.Context(), request(podOf("ledger-0", optedIn, nil)))
		want := fmt.Sprintf("%q", test.want)
		if patch := string(response.Patch); !response.Allowed || !strings.Contains(patch, want) || strings.Contains(patch, `"former`) || strings.Contains(patch, "audit") {
			t.Errorf("%s: got allowed=%t and patch %s, want the group %s", name, response.Allowed, patch, want)
		}
		expect.Equalf(t, live, test.lists, "%s: lists from the API server", name)
	}
}
