package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// scrapeTo is for the test of the dashboards, which is in another module.
var scrapeTo = flag.String("scrape", "", "write the metrics of the manager to this file")

// scrape reads the metrics with the token of a service account, or without one.
func (e *env) scrape(account string) (status int, text string) {
	e.t.Helper()
	token := ""
	if account != "" {
		token = e.token("default", account, authenticationv1.TokenRequestSpec{})
	}
	status, text, err := e.request(e.t.Context(), "metrics-address", metricsService, "/metrics", token, nil)
	must.Succeed(e.t, err)
	return status, text
}

// expectMetrics requires that authorized clients, and no others, can read the metrics, and that
// there are all metrics that alerts use.
func (e *env) expectMetrics(t *testing.T) {
	e.create(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stranger"}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "conclave-metrics-reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "reader"}},
		},
	)
	if status, text := e.scrape(""); status != http.StatusUnauthorized {
		t.Errorf("without a token: got status %d, want %d: %s", status, http.StatusUnauthorized, text)
	}
	if status, text := e.scrape("stranger"); status != http.StatusForbidden {
		t.Errorf("without permission: got status %d, want %d: %s", status, http.StatusForbidden, text)
	}
	text := e.awaitMetrics()
	rules := must.ReadFile(t, "../../config/prometheus/rules.yaml")
	names := regexp.MustCompile(`conclave_operator_\w+`).FindAllString(string(rules), -1)
	expect.AtLeastf(t, len(names), 5, "metrics in the alerts")
	for _, name := range names {
		// There is no series without agents.
		if name != "conclave_operator_agents" && !strings.Contains(text, "\n"+name+"{") {
			t.Errorf("got no metric %s, which an alert uses:\n%s", name, text)
		}
	}
	for _, line := range []string{
		`leader_election_master_status{name="conclave-manager"} 1`,
		`conclave_operator_enrollments_total{result="issued"} 1`,
		`conclave_operator_injections_total{result="refused"} 0`,
		`conclave_operator_group_status_behind{group="ledger",namespace="default"} 0`,
	} {
		expect.Containsf(t, text, "\n"+line+"\n", "metrics")
	}
	// One CA is valid for a year, and certificates are valid for a day: the values differ.
	expiries := regexp.MustCompile(
		`conclave_operator_certificate_expiry_timestamp_seconds\{certificate="(\w+)"\} 1\.[7-9]`).
		FindAllStringSubmatch(text, -1)
	var certificates []string
	for _, found := range expiries {
		certificates = append(certificates, found[1])
	}
	if want := []string{"ca", "identity", "operator", "webhook"}; !slices.Equal(certificates, want) {
		t.Errorf("got the expiry of the certificates %q, want %q:\n%s", certificates, want, text)
	}
}

// expectMetricsCredentials requires that the Secret to which config/prometheus refers lets clients
// verify the server of the metrics.
func (e *env) expectMetricsCredentials(t *testing.T) {
	t.Helper()
	var secret corev1.Secret
	e.eventually("the credentials exist", func() error { return e.get(&secret, namespace, authority.MetricsSecretName) })
	pair := identity.Pair{Cert: secret.Data[authority.MetricsCertKey], Key: secret.Data[authority.MetricsKeyKey]}
	if names, err := identity.Verify(pair, secret.Data[authority.MetricsCAKey]); err != nil ||
		!slices.Equal(names, identity.Names{control.MetricsReader}) {
		t.Errorf("got a certificate for %s, want %s: %v", names, control.MetricsReader, err)
	}
	e.caBundle = secret.Data[authority.MetricsCAKey]
	defer func() { e.caBundle = nil }()
	e.awaitMetrics()
}

// awaitMetrics waits until the reader is authorized, and returns the metrics.
func (e *env) awaitMetrics() (text string) {
	e.t.Helper()
	e.eventually("the reader is authorized", func() error {
		var status int
		if status, text = e.scrape("reader"); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	return text
}

// expectRefusedWriteCounted creates a group whose Service the policies in config/policy refuse.
func (e *env) expectRefusedWriteCounted(t *testing.T) {
	t.Helper()
	e.create(&v1.ElectionGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "refused"},
		Spec: v1.ElectionGroupSpec{
			Members: []v1.Member{{Pod: "refused-0", Priority: 1}},
			Service: &v1.CoordinatorService{Name: "refused", Ports: []v1.ServicePort{{Port: 80}}},
		},
	})
	refused := regexp.MustCompile(`rest_client_requests_total\{code="4(03|22)",host="[^"]+",method="PATCH"\} [1-9]`)
	var text string
	e.eventually("the refused Service is counted", func() error {
		if text = e.awaitMetrics(); !refused.MatchString(text) {
			return fmt.Errorf("got no %s:\n%s", refused, text)
		}
		return nil
	})
	if *scrapeTo != "" {
		must.Succeed(t, os.WriteFile(*scrapeTo, []byte(text), 0o600))
	}
}

// reviewer answers reviews. The user of a token has its name.
type reviewer struct {
	client.Client

	requests int
	down     bool
}

func (r *reviewer) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	r.requests++
	if r.down {
		return errors.New("connection refused")
	}
	switch review := object.(type) {
	case *authenticationv1.TokenReview:
		review.Status.Authenticated = review.Spec.Token != "forged"
		review.Status.User.Username = review.Spec.Token
		review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"scopes": {"metrics"}}
	case *authorizationv1.SubjectAccessReview:
		asked := *review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User != "stranger" && asked.Path == "/metrics" && asked.Verb == "get" &&
			review.Spec.Extra["scopes"][0] == "metrics"
		review.Status.Denied = review.Spec.User == "denied"
	default:
		return fmt.Errorf("got %T, want a review", object)
	}
	return nil
}

// TestOnlyAuthorizedClientsAreServed: the API server decides, and is asked once a minute.
func TestOnlyAuthorizedClientsAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &reviewer{}
		a := &authorized{api: api, log: slog.New(slog.DiscardHandler), handler: http.HandlerFunc(
			func(http.ResponseWriter, *http.Request) {})}
		expect := func(method, header string, want, requests int) {
			t.Helper()
			before := api.requests
			r := httptest.NewRequestWithContext(t.Context(), method, "/metrics", nil)
			r.Header.Set("Authorization", header)
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code != want || api.requests-before != requests {
				t.Errorf("%s with %q: got status %d after %d requests, want %d after %d", method, header, w.Code,
					api.requests-before, want, requests)
			}
		}
		expect(http.MethodGet, "", http.StatusUnauthorized, 0)
		expect(http.MethodGet, "Bearer ", http.StatusUnauthorized, 0)
		expect(http.MethodGet, "Basic reader", http.StatusUnauthorized, 0)
		expect(http.MethodGet, "Bearer forged", http.StatusUnauthorized, 1)
		expect(http.MethodGet, "Bearer stranger", http.StatusForbidden, 2)
		expect(http.MethodGet, "Bearer stranger", http.StatusForbidden, 2)
		expect(http.MethodGet, "Bearer denied", http.StatusForbidden, 2)
		expect(http.MethodGet, "Bearer reader", http.StatusOK, 2)
		expect(http.MethodGet, "bearer reader", http.StatusOK, 0)
		expect(http.MethodPost, "Bearer reader", http.StatusForbidden, 2)
		api.down = true
		expect(http.MethodGet, "Bearer reader", http.StatusOK, 0)
		time.Sleep(permissionTTL)
		expect(http.MethodGet, "Bearer reader", http.StatusInternalServerError, 1)
		api.down = false
		for i := range 2 * maxPermissions {
			expect(http.MethodGet, fmt.Sprint("Bearer reader-", i), http.StatusOK, 2)
		}
		if len(a.permitted) > maxPermissions {
			t.Errorf("got %d permissions in memory, want at most %d", len(a.permitted), maxPermissions)
		}
	})
}
