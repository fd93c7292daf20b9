package alerts_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func read(t *testing.T, file string) string {
	t.Helper()
	text := must.ReadFile(t, "../../../"+file)
	return string(text)
}

func rules(t *testing.T) []rule {
	t.Helper()
	var resource struct {
		Spec struct {
			Groups []struct {
				Rules []rule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	must.Succeed(t, yaml.Unmarshal([]byte(read(t, "config/prometheus/rules.yaml")), &resource))
	var all []rule
	for _, group := range resource.Spec.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("got no rules")
	}
	return all
}

// otherMetrics are those of Prometheus and of controller-runtime. TestManagerWorksWithItsPermissions checks that the
// manager has the latter.
var otherMetrics = []string{"up", "leader_election_master_status", "rest_client_requests_total"}

// validate returns the problems of a rule: an invalid expression, a metric that the
// operator does not have, or a label in an annotation that the result does not have.
func validate(r rule, metrics []string) (problems []string) {
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
	if err != nil {
		return []string{err.Error()}
	}
	var labels []string
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			name := strings.TrimSuffix(n.Name, "_bucket")
			if !slices.Contains(otherMetrics, name) && !slices.Contains(metrics, name) {
				problems = append(problems, "the operator has no metric "+n.Name)
			}
		case *parser.AggregateExpr:
			labels = append(labels, n.Grouping...)
		}
		return nil
	})
	for _, text := range r.Annotations {
		for _, found := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
			if !slices.Contains(labels, found[1]) {
				problems = append(problems, "the result has no label "+found[1])
			}
		}
	}
	return problems
}

// metrics returns the full names of the metrics of the operator and of agents.
func metrics(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, file := range []string{
		"cmd/manager/metrics.go", "controllers/metrics.go", "internal/operator/serve/authority/expiry.go",
		"internal/operator/serve/enroll/result.go", "internal/operator/serve/webhook/webhook.go",
		"internal/agent/metrics/metrics.go",
	} {
		for _, found := range regexp.MustCompile(`"(conclave_\w+)"`).FindAllStringSubmatch(read(t, file), -1) {
			names = append(names, found[1])
		}
	}
	return names
}

func TestAlertsAreValidAndDocumented(t *testing.T) {
	known, docs := metrics(t), read(t, "docs/reference.md")
	for _, r := range rules(t) {
		for _, problem := range validate(r, known) {
			t.Errorf("%s: %s", r.Alert, problem)
		}
		if !strings.Contains(docs, "| "+r.Alert+" |") {
			t.Errorf("docs/reference.md does not document the alert %s", r.Alert)
		}
	}
}

func TestMetricsAreDocumented(t *testing.T) {
	operator, agent := read(t, "docs/reference.md"), read(t, "docs/agent.md")
	for _, name := range metrics(t) {
		if strings.HasPrefix(name, "conclave_operator_") {
			if !strings.Contains(operator, "`"+name) {
				t.Errorf("docs/reference.md does not document the metric %s", name)
			}
			continue
		}
		// A row of the page has the common beginning of several names only once.
		if !strings.Contains(agent, "`"+name) && !strings.Contains(agent, "`"+strings.TrimPrefix(name, "conclave_messages")) {
			t.Errorf("docs/agent.md does not document the metric %s", name)
		}
	}
}

func TestInvalidAlertsAreDetected(t *testing.T) {
	known := metrics(t)
	for name, c := range map[string]struct {
		rule
		want string
	}{
		"an invalid expression": {rule{Expr: "max by (group) conclave_operator_groups)"}, "parse error"},
		"an unknown metric":     {rule{Expr: "conclave_operator_mood > 1"}, "no metric conclave_operator_mood"},
		"an unknown label in an annotation": {
			rule{Expr: "max by (group) (conclave_operator_group_agreed)", Annotations: map[string]string{
				"summary": "{{ $labels.namespace }}",
			}}, "no label namespace",
		},
	} {
		expect.Containsf(t, strings.Join(validate(c.rule, known), "; "), c.want, "%s: problems", name)
	}
}
