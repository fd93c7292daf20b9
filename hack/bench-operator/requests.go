package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// requestCounter counts the requests of one user with the API server's metrics. The metrics of requests don't identify
// the user. The metrics of API priority and fairness contain the name of the flow schema of each request, so
// requestCounter creates a flow schema for each kind of request of this user. The schemas have the priority level that
// service accounts have by default.
type requestCounter struct {
	admin *kubernetes.Clientset
	name  string
}

// requestKind is a kind of requests. Its name begins with reads, writes, watches, or, for
// the manager's Lease, with lease.
type requestKind struct {
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

// listKinds returns all kinds. A request belongs to the first kind that matches.
func listKinds() []requestKind {
	const conclave, core = "conclave.dev", ""
	all := []requestKind{
		{leaseWrites, writing, []string{"coordination.k8s.io"}, []string{"leases"}},
		{leaseReads, everything, []string{"coordination.k8s.io"}, []string{"leases"}},
		{"watches", []string{"watch"}, everything, everything},
	}
	for _, of := range []struct{ group, resource string }{
		{conclave, "electiongroups"},
		{core, "pods"},
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
		all = append(all, requestKind{writes + "-" + name, writing, group, resources},
			requestKind{reads + "-" + name, everything, group, resources})
	}
	return append(all, requestKind{writes + "-others", writing, everything, everything},
		requestKind{reads + "-others", everything, everything, everything})
}

// newRequestCounter starts to count the requests of a user.
func newRequestCounter(ctx context.Context, admin *kubernetes.Clientset, name, user string) (*requestCounter, error) {
	c := &requestCounter{admin, name}
	for i, kind := range kinds {
		schema := &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: c.schema(kind.name)},
			Spec: flowcontrolv1.FlowSchemaSpec{
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "workload-low"},
				MatchingPrecedence:         int32(500 + i), //nolint:gosec // there are few
				DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{
					Type: flowcontrolv1.FlowDistinguisherMethodByUserType,
				},
				Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
					Subjects: []flowcontrolv1.Subject{
						{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}},
					},
					ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
						Verbs: kind.verbs, APIGroups: kind.groups, Resources: kind.resources, Namespaces: everything, ClusterScope: true,
					}},
				}},
			},
		}
		if i == len(kinds)-1 {
			schema.Spec.Rules[0].NonResourceRules = []flowcontrolv1.NonResourcePolicyRule{
				{Verbs: everything, NonResourceURLs: everything},
			}
		}
		if _, err := admin.FlowcontrolV1().FlowSchemas().Create(ctx, schema, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("cannot count the requests of %s: %w", user, err)
		}
	}
	return c, c.await(ctx)
}

func (c *requestCounter) schema(kind string) string { return "bench-" + c.name + "-" + kind }

// await returns when the API server uses the flow schemas. It then sets their Dangling conditions to False.
func (c *requestCounter) await(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, waitMax, true, func(ctx context.Context) (bool, error) {
		for _, kind := range kinds {
			schema, err := c.admin.FlowcontrolV1().FlowSchemas().Get(ctx, c.schema(kind.name), metav1.GetOptions{})
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

// Quantities are numbers of requests by kind, or another quantity by name.
type Quantities map[string]float64

// minus returns the increases. Names that haven't increased are omitted.
func (r Quantities) minus(before Quantities) Quantities {
	difference := Quantities{}
	for name, count := range r {
		if count != before[name] {
			difference[name] = count - before[name]
		}
	}
	return difference
}

// withPrefix returns the sum over all names with this prefix.
func (r Quantities) withPrefix(prefix string) (sum float64) {
	for name, count := range r {
		if strings.HasPrefix(name, prefix) {
			sum += count
		}
	}
	return sum
}

// per divides all numbers by n and rounds them to hundredths.
func (r Quantities) per(n int) Quantities {
	shares := Quantities{}
	for name, count := range r {
		shares[name] = float64(int(100*count/float64(max(n, 1))+0.5)) / 100
	}
	return shares
}

// String lists all names and numbers, the largest number first.
func (r Quantities) String() string {
	if len(r) == 0 {
		return "none"
	}
	all := slices.SortedFunc(maps.Keys(r),
		func(a, b string) int { return cmp.Or(cmp.Compare(r[b], r[a]), cmp.Compare(a, b)) })
	for i, name := range all {
		all[i] = fmt.Sprintf("%s %g", name, r[name])
	}
	return strings.Join(all, ", ")
}

// dispatched matches the samples of the requests that the API server has dispatched.
var dispatched = regexp.MustCompile(
	`(?m)^apiserver_flowcontrol_dispatched_requests_total{.*flow_schema="([^"]*)".*} (\S+)$`)

// count returns the numbers of requests so far by kind.
func (c *requestCounter) count(ctx context.Context) (Quantities, error) {
	text, err := c.admin.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the metrics of the API server: %w", err)
	}
	samples := dispatched.FindAllStringSubmatch(string(text), -1)
	if len(samples) == 0 {
		return nil, errors.New("the API server has no metric of dispatched requests")
	}
	counted := Quantities{}
	for _, kind := range kinds {
		counted[kind.name] = 0
	}
	for _, sample := range samples {
		kind, ours := strings.CutPrefix(sample[1], c.schema(""))
		requests, err := strconv.ParseFloat(sample[2], 64)
		if err != nil {
			return nil, fmt.Errorf("cannot parse the metrics of the API server: %w", err)
		}
		if ours {
			counted[kind] += requests
		}
	}
	return counted, nil
}

// during counts the requests in a period, and returns how long that took.
func (c *requestCounter) during(ctx context.Context, period time.Duration) (time.Duration, Quantities, error) {
	before, err := c.count(ctx)
	if err != nil {
		return 0, nil, err
	}
	begun := time.Now()
	if err := benchmark.Wait(ctx, period); err != nil {
		return 0, nil, err
	}
	after, err := c.count(ctx)
	return time.Since(begun), after.minus(before), err
}
