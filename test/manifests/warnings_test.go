package manifests_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// warnings collects the warnings of an API server, which kubectl prints.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.all, "\n")
	w.all = nil
	return all
}

// Who applies a group in which applications may act for less than the lease is warned, and the group is accepted.
func TestShortDrainTimeoutIsWarnedOf(t *testing.T) {
	admin := connect(t)
	apply(t, admin, build(t, "config/default"))
	config := apiServer.Config(t)
	found := &warnings{}
	config.WarningHandlerWithContext = found
	c := testclient.New(t, config)
	create := func(lease int32, drain *int32, mode v1.SafetyMode) error {
		g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ledger"}}
		g.Spec.Members = []v1.Member{{Pod: "ledger-0", Priority: 1}}
		g.Spec.Safety = v1.Safety{Mode: mode, LeaseMillis: lease}
		g.Spec.Timing.DrainMillis = drain
		return c.Create(t.Context(), g, client.DryRunAll)
	}
	const want = "spec.timing.drainMillis (300) is shorter than spec.safety.leaseMillis (500)"
	eventually(t, "a warning", func() error {
		if err := create(500, new(int32(300)), v1.Majority); err != nil {
			return err
		}
		if got := found.take(); !strings.Contains(got, want) {
			return fmt.Errorf("got warnings %q, want %q", got, want)
		}
		return nil
	})
	for name, err := range map[string]error{
		"equal":     create(500, new(int32(500)), v1.Strict),
		"defaults":  create(0, nil, ""),
		"Available": create(500, new(int32(300)), v1.Available),
	} {
		expect.Succeedf(t, err, "%s", name)
	}
	expect.Equalf(t, found.take(), "", "warnings")
	expect.Succeed(t, create(6000, nil, v1.Majority))
	expect.Containsf(t, found.take(), "spec.timing.drainMillis (5000)", "with the default of drainMillis: warnings")
}
