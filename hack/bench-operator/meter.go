package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// meter counts the requests of one user, by the API server's own metrics. Those
// of requests don't tell whose they are. Those of priority and fairness have the
// name of the flow schema that a request fell under; so there is one for each
// kind of request of this user. They lead to the level that service accounts
// have anyway.
type meter struct {
	admin *kubernetes.Clientset
	name  string
}

// kind is a kind of requests. Its name begins with what it is: a read, a write,
// a watch, or what the Lease of the manager takes.
type kind struct {
	name                     string
	verbs, groups, resources []string
}

const (
	leaseWrites = "lease-writes"
	leaseReads  = "lease-reads"
	writes      = "writes"
	reads       = "reads"
)

var (
	writing    = []string{"create", "update", "patch", "delete", "deletecollection"}
	everything = []string{"*"}
	kinds      = listKinds()
)

// listKinds are the kinds, of which the first that fits counts.
func listKinds() []kind {
	const ours, core = "conclave.dev", ""
	all := []kind{
		{leaseWrites, writing, []string{"coordination.k8s.io"}, []string{"leases"}},
		{leaseReads, everything, []string{"coordination.k8s.io"}, []string{"leases"}},
		{"watches", []string{"watch"}, everything, everything},
	}
	for _, of := range []struct{ group, resource string }{
		{ours, "electiongroups"},
		{core, "pods"},
		{core, "configmaps"},
		{core, "services"},
		{"discovery.k8s.io", "endpointslices"},
		{core, "events"},
		{"events.k8s.io", "events"},
		{core, "nodes"},
		{core, "secrets"},
		{core, "namespaces"},
		{"authentication.k8s.io", "tokenreviews"},
		{"admissionregistration.k8s.io", "mutatingwebhookconfigurations"},
	} {
		name, group, resources := of.resource, []string{of.group}, []string{of.resource, of.resource + "/status"}
		if of.group == "events.k8s.io" {
			name = "new-events"
		}
		all = append(all, kind{writes + "-" + name, writing, group, resources}, kind{reads + "-" + name, everything, group, resources})
	}
	return append(all, kind{writes + "-others", writing, everything, everything}, kind{reads + "-others", everything, everything, everything})
}

// newMeter counts the requests of a user from now on.
func newMeter(ctx context.Context, admin *kubernetes.Clientset, name, user string) (*meter, error) {
	m := &meter{admin, name}
	for i, kind := range kinds {
		schema := &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: m.schema(kind.name)},
			Spec: flowcontrolv1.FlowSchemaSpec{
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "workload-low"},
				MatchingPrecedence:         int32(500 + i), //nolint:gosec // there are few
				DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
				Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
					Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}}},
					ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
						Verbs: kind.verbs, APIGroups: kind.groups, Resources: kind.resources, Namespaces: everything, ClusterScope: true,
					}},
				}},
			},
		}
		if i == len(kinds)-1 {
			schema.Spec.Rules[0].NonResourceRules = []flowcontrolv1.NonResourcePolicyRule{{Verbs: everything, NonResourceURLs: everything}}
		}
		if _, err := admin.FlowcontrolV1().FlowSchemas().Create(ctx, schema, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("count the requests of %s: %w", user, err)
		}
	}
	return m, m.await(ctx)
}

func (m *meter) schema(kind string) string { return "bench-" + m.name + "-" + kind }

// await returns when the API server goes by the schemas: it then says of each
// that it isn't dangling.
func (m *meter) await(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		for _, kind := range kinds {
			schema, err := m.admin.FlowcontrolV1().FlowSchemas().Get(ctx, m.schema(kind.name), metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			if !slices.ContainsFunc(schema.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) bool {
				return c.Type == flowcontrolv1.FlowSchemaConditionDangling && c.Status == flowcontrolv1.ConditionFalse
			}) {
				return false, nil
			}
		}
		return true, nil
	})
}

// Requests counts requests by something.
type Requests map[string]float64

// since is how many more they are than before.
func (r Requests) since(before Requests) Requests {
	more := Requests{}
	for what, count := range r {
		if count != before[what] {
			more[what] = count - before[what]
		}
	}
	return more
}

// of is how many of them have a name that begins so.
func (r Requests) of(begin string) (sum float64) {
	for what, count := range r {
		if strings.HasPrefix(what, begin) {
			sum += count
		}
	}
	return sum
}

// per divides by a number, rounded to hundredths.
func (r Requests) per(number int) Requests {
	shares := Requests{}
	for what, count := range r {
		shares[what] = float64(int(100*count/float64(max(number, 1))+0.5)) / 100
	}
	return shares
}

// String is the most frequent first.
func (r Requests) String() string {
	if len(r) == 0 {
		return "none"
	}
	all := slices.SortedFunc(maps.Keys(r), func(a, b string) int { return cmp.Or(cmp.Compare(r[b], r[a]), cmp.Compare(a, b)) })
	for i, what := range all {
		all[i] = fmt.Sprintf("%s %g", what, r[what])
	}
	return strings.Join(all, ", ")
}

// count is how many requests there were so far, by kind.
func (m *meter) count(ctx context.Context) (Requests, error) {
	families, err := scrape(ctx, m.admin)
	if err != nil {
		return nil, err
	}
	counted := Requests{}
	for _, kind := range kinds {
		counted[kind.name] = 0
	}
	err = eachSample(families, "apiserver_flowcontrol_dispatched_requests_total", func(labels map[string]string, value float64) {
		if kind, ours := strings.CutPrefix(labels["flow_schema"], m.schema("")); ours {
			counted[kind] += value
		}
	})
	return counted, err
}

// countAll is how many requests for resources there were so far, whoever sent
// them, by verb and resource. Watches count when they end.
func countAll(ctx context.Context, admin *kubernetes.Clientset) (Requests, error) {
	families, err := scrape(ctx, admin)
	if err != nil {
		return nil, err
	}
	counted := Requests{}
	err = eachSample(families, "apiserver_request_total", func(labels map[string]string, value float64) {
		if labels["resource"] == "" || labels["verb"] == "WATCH" {
			return
		}
		what := labels["verb"] + " " + labels["resource"]
		if labels["subresource"] != "" {
			what += "/" + labels["subresource"]
		}
		if labels["code"] >= "300" {
			what += " (" + labels["code"] + ")"
		}
		counted[what] += value
	})
	return counted, err
}

func scrape(ctx context.Context, admin *kubernetes.Clientset) (map[string]*dto.MetricFamily, error) {
	text, err := admin.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("understand the API server's metrics: %w", err)
	}
	return families, nil
}

func eachSample(families map[string]*dto.MetricFamily, name string, see func(labels map[string]string, value float64)) error {
	family := families[name]
	if family == nil {
		return fmt.Errorf("the API server has no metric %s", name)
	}
	for _, sample := range family.GetMetric() {
		labels := map[string]string{}
		for _, label := range sample.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		see(labels, sample.GetCounter().GetValue())
	}
	return nil
}
