package manifests_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
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

// Users write only their own name to the annotation that names who requested a step-down.
func TestUsersNameOnlyThemselves(t *testing.T) {
	admin := connect(t)
	apply(t, admin, build(t, "config/default"))
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "alice-", Namespace: "default",
	}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}},
	}}
	must.Succeed(t, admin.Create(t.Context(), role))
	must.Succeed(t, admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: "default"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}},
	}))
	config := apiServer.Config(t)
	config.Impersonate.UserName = "alice"
	alice := testclient.New(t, config)
	pod := podOf(
		metav1.ObjectMeta{GenerateName: "ledger-", Namespace: "default", Labels: map[string]string{v1.LabelAgent: "later"}})
	must.Succeed(t, admin.Create(t.Context(), pod)) // The API server can't reach the webhook.
	before := pod.DeepCopy()
	pod.Labels[v1.LabelAgent] = v1.AgentEnabled
	must.Succeed(t, admin.Patch(t.Context(), pod, client.MergeFrom(before)))
	write := func(c client.Client, value string, options ...client.PatchOption) error {
		changed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1.AnnotationStepDownBy, value)
		return c.Patch(t.Context(), changed, client.RawPatch("application/merge-patch+json", []byte(patch)), options...)
	}
	const want = "with your own name"
	eventually(t, "another name is refused", func() error {
		if err := write(alice, v1.FormatStepDownBy("ledger", 7, "bob"), client.DryRunAll); err == nil ||
			!strings.Contains(err.Error(), want) {
			return fmt.Errorf("got error %w, want %q", err, want)
		}
		return nil
	})
	for _, value := range []string{
		"", "alice", "ledger/7", "ledger/7  alice", "ledger/7 alice ", "ledger/7 bob alice", "ledger/7 system:admin",
	} {
		expect.ErrorContainsf(t, write(alice, value), want, "%q: error", value)
	}
	must.Succeed(t, write(alice, v1.FormatStepDownBy("ledger", 7, "alice")))
	// Others change the pod as before.
	changed := pod.DeepCopy()
	changed.Annotations = map[string]string{
		v1.AnnotationStepDownBy: v1.FormatStepDownBy("ledger", 7, "alice"), "example.org/other": "value",
	}
	must.Succeed(t, admin.Patch(t.Context(), changed, client.MergeFrom(pod)))
	changed = pod.DeepCopy()
	changed.Annotations = map[string]string{v1.AnnotationStepDownBy: v1.FormatStepDownBy("ledger", 7, "alice")}
	removed := changed.DeepCopy()
	removed.Annotations = nil
	must.Succeed(t, admin.Patch(t.Context(), removed, client.MergeFrom(changed)))
}
