package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/serve/webhook"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// untouched is the result for a pod that isn't changed.
const untouched = "untouched"

// createNamespace creates a namespace with two groups: ledger declares the pod ledger-0, and
// mail selects the pods with the label app=mail.
func createNamespace(t *testing.T, c client.Client, labels map[string]string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bank-", Labels: labels}}
	must.Succeed(t, c.Create(t.Context(), namespace))
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace.Name, Name: name}
	}
	for _, group := range []*v1.ElectionGroup{
		{ObjectMeta: meta("ledger"), Spec: v1.ElectionGroupSpec{Members: []v1.Member{{Pod: "ledger-0", Priority: 1}}}},
		{ObjectMeta: meta("mail"), Spec: v1.ElectionGroupSpec{
			Selector:     &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "mail"}},
			PriorityFrom: &v1.PriorityFrom{Ordinal: v1.HighestFirst},
		}},
	} {
		must.Succeed(t, c.Create(t.Context(), group))
	}
	return namespace.Name
}

// admit creates a pod as a dry run, and returns the groups that select it.
func admit(t *testing.T, c client.Client, namespace string, pod *corev1.Pod) string {
	t.Helper()
	pod.Namespace = namespace
	if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
		return err.Error()
	}
	groups, selected := pod.Annotations[v1.AnnotationSelectedBy]
	switch {
	case len(pod.Spec.InitContainers) == 0 && !selected:
		return untouched
	case len(pod.Spec.InitContainers) == 0, pod.Labels[v1.LabelAgent] != v1.AgentEnabled:
		return "half injected"
	case !selected:
		return "named: " + pod.Annotations[v1.AnnotationGroups]
	}
	return groups
}

func withLabels(pairs ...string) map[string]string {
	labels := map[string]string{}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		labels[key] = value
	}
	return labels
}

const labeled, disabled = v1.LabelAgent + "=" + v1.AgentEnabled, v1.LabelAgent + "=" + v1.AgentDisabled

// TestOneLabelIsEnough: the groups of the namespace tell which of them a pod is in.
func TestOneLabelIsEnough(t *testing.T) {
	c := serve(t)
	awaitWebhook(t, c)
	bank, elsewhere := createNamespace(t, c, nil), "default"
	generated := podOf("", withLabels(labeled, "app=mail"), nil)
	generated.GenerateName = "mail-"
	declared := podOf("", withLabels(labeled), nil)
	declared.GenerateName = "ledger-"
	for name, test := range map[string]struct {
		namespace string
		pod       *corev1.Pod
		want      string
	}{
		"a declared member":                    {bank, podOf("ledger-0", withLabels(labeled), nil), "ledger"},
		"a name that isn't declared":           {bank, podOf("ledger-1", withLabels(labeled), nil), ""},
		"a selected pod with a generated name": {bank, generated, "mail"},
		"a generated name is unknown as yet":   {bank, declared, ""},
		"both groups": {
			bank, podOf("ledger-0", withLabels(labeled, "app=mail"), nil), "ledger,mail",
		},
		"groups of another namespace": {elsewhere, podOf("ledger-0", withLabels(labeled, "app=mail"), nil), ""},
		"without the label":           {bank, podOf("ledger-0", withLabels("app=mail"), nil), untouched},
		"an annotation takes precedence": {
			bank, podOf("ledger-0", withLabels(labeled), map[string]string{v1.AnnotationGroups: "audit"}), "named: audit",
		},
		"an annotation that the pod can't choose": {
			bank, podOf("ledger-1", withLabels(labeled), map[string]string{v1.AnnotationSelectedBy: "ledger"}), "",
		},
	} {
		expect.Equalf(t, admit(t, c, test.namespace, test.pod), test.want, "%s", name)
	}
}

// TestNamespaceOptsIn: its pods need no label of their own.
func TestNamespaceOptsIn(t *testing.T) {
	c := serve(t)
	awaitWebhook(t, c)
	optedIn := map[string]string{v1.LabelInjection: v1.InjectionEnabled}
	in, out := createNamespace(t, c, optedIn), createNamespace(t, c, nil)
	operator := createNamespace(t, c,
		map[string]string{v1.LabelInjection: v1.InjectionEnabled, "conclave.dev/operator": ""})
	other := createNamespace(t, c, map[string]string{v1.LabelInjection: "disabled"})
	for name, test := range map[string]struct {
		namespace string
		pod       *corev1.Pod
		want      string
	}{
		"a selected pod":                              {in, podOf("mail-0", withLabels("app=mail"), nil), "mail"},
		"a pod that no group selects":                 {in, podOf("web-0", withLabels("app=web"), nil), untouched},
		"a pod that no group selects, with the label": {in, podOf("web-0", withLabels(labeled), nil), ""},
		"a pod that opts out": {
			in, podOf("mail-0", withLabels("app=mail", disabled), nil), untouched,
		},
		"a pod that names its groups": {
			in, podOf("web-0", nil, map[string]string{v1.AnnotationGroups: "audit"}), "named: audit",
		},
		"a namespace that hasn't opted in": {out, podOf("mail-0", withLabels("app=mail"), nil), untouched},
		"a namespace with another value":   {other, podOf("mail-0", withLabels("app=mail"), nil), untouched},
		"the namespace of the manager":     {operator, podOf("mail-0", withLabels("app=mail"), nil), untouched},
	} {
		expect.Equalf(t, admit(t, c, test.namespace, test.pod), test.want, "%s", name)
	}
}

// TestOtherPodsNeverDependOnTheManager: without it, the API server refuses only pods that
// have opted in, by themselves or by their namespace.
func TestOtherPodsNeverDependOnTheManager(t *testing.T) {
	c := testclient.New(t, apiServer.Config(t))
	port, err := testnet.FreePort()
	must.Succeed(t, err)
	config := configuration(t, port)
	config.Name = "without-manager"
	must.Succeed(t, c.Create(t.Context(), config))
	t.Cleanup(func() {
		expect.Succeed(t, c.Delete(context.WithoutCancel(t.Context()), config))
	})
	in, out := createNamespace(t, c, map[string]string{v1.LabelInjection: v1.InjectionEnabled}), createNamespace(t, c, nil)
	const refused = "failed calling webhook"
	testwait.Until(t, "the API server applies the webhook configuration", func() bool {
		return strings.Contains(admit(t, c, out, podOf("ledger-0", withLabels(labeled), nil)), refused)
	})
	for name, test := range map[string]struct {
		namespace string
		pod       *corev1.Pod
		want      string
	}{
		"a pod that has opted in":                {in, podOf("web-0", withLabels(labeled), nil), refused},
		"a pod in a namespace that has opted in": {in, podOf("web-0", nil, nil), refused},
		"a pod that has opted out": {
			in, podOf("mail-0", withLabels("app=mail", disabled), nil), untouched,
		},
		"a pod of a group, in another namespace":         {out, podOf("mail-0", withLabels("app=mail"), nil), untouched},
		"a pod with an annotation, in another namespace": {out, podOf("web-0", nil, ledger), untouched},
		"a pod that has opted out, in another namespace": {out, podOf("ledger-0", withLabels(disabled), nil), untouched},
		"a pod of the system": {
			metav1.NamespaceSystem, podOf("ledger-0", withLabels(labeled), nil), untouched,
		},
	} {
		expect.Containsf(t, admit(t, c, test.namespace, test.pod), test.want, "%s", name)
	}
}

// TestWarningForPodWithoutGroup: the pod is admitted, because its group may be created later.
func TestWarningForPodWithoutGroup(t *testing.T) {
	c := testclient.New(t, apiServer.Config(t))
	injector := &webhook.Injector{
		Log: slog.New(slog.DiscardHandler), Groups: groupsFrom(c),
		Settings: func(context.Context) (inject.Settings, error) { return settings, nil },
	}
	pod := request(podOf("in", optedIn, nil))
	pod.Namespace = createNamespace(t, c, nil)
	want := "no ElectionGroup in namespace " + pod.Namespace + " selects this pod: its agent waits for one"
	if got := injector.Handle(t.Context(), pod); !got.Allowed || len(got.Patch) == 0 ||
		len(got.Warnings) != 1 || got.Warnings[0] != want {
		t.Errorf("got %+v, want an agent and the warning %q", got, want)
	}
}

// TestUnreadableGroups: a pod that needs them is refused, so that it doesn't run without the
// agent that it expects. Others don't need them.
func TestUnreadableGroups(t *testing.T) {
	unreadable := func(context.Context, string, func([]v1.ElectionGroup)) error { return errors.New("no access") }
	injector := &webhook.Injector{
		Log: slog.New(slog.DiscardHandler), Groups: unreadable,
		Settings: func(context.Context) (inject.Settings, error) { return settings, nil },
	}
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		allowed bool
	}{
		"by selection":  {podOf("in", optedIn, nil), false},
		"by annotation": {podOf("in", optedIn, ledger), true},
		"not opted in":  {podOf("out", nil, nil), true},
	} {
		expect.Equalf(t, injector.Handle(t.Context(), request(test.pod)).Allowed, test.allowed, "%s: allowed", name)
	}
}

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
		expect.EqualSlicesf(t, counted, want, "counted pods")
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
		"the cache has the group":   {[]string{"ledger"}, []string{"ledger", "audit"}, nil, "ledger", 0},
		"the cache lacks the group": {nil, []string{"ledger"}, nil, "ledger", 1},
		"the cache fails after its first one": {
			[]string{"former"}, []string{"ledger"}, errors.New("the cache hasn't been started"), "ledger", 1,
		},
	} {
		var cached, live int
		injector := &webhook.Injector{
			Log:      slog.New(slog.DiscardHandler),
			Settings: func(context.Context) (inject.Settings, error) { return settings, nil },
			Cached:   lister(&cached, test.err, test.cached...), Groups: lister(&live, nil, test.live...),
		}
		response := injector.Handle(t.Context(), request(podOf("ledger-0", optedIn, nil)))
		want := fmt.Sprintf("%q", test.want)
		if patch := string(response.Patch); !response.Allowed || !strings.Contains(patch, want) ||
			strings.Contains(patch, `"former`) || strings.Contains(patch, "audit") {
			t.Errorf("%s: got allowed=%t and patch %s, want the group %s", name, response.Allowed, patch, want)
		}
		expect.Equalf(t, live, test.lists, "%s: lists from the API server", name)
	}
}
