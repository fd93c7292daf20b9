package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// TestClockOfThisMachineDoesNotMatter: the cluster's clocks are three hours behind, or the one
// of this machine is ahead. Ages are those in the cluster, and the operator runs.
func TestClockOfThisMachineDoesNotMatter(t *testing.T) {
	const ahead = 3 * time.Hour
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	there := time.Now().Add(-ahead)
	g.Status.Coordinator.ElectedAt = metav1.NewMicroTime(there.Add(-10*time.Minute - 30*time.Second))
	must.Succeed(t, e.Status().Update(t.Context(), g))
	e.CreateOperator(t)
	renewed := metav1.NewMicroTime(there)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: operatorlease.Name}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	must.Succeed(t, e.Create(t.Context(), lease))
	need.Complete(t)
	config := apiServer.Config(t)
	transport, err := rest.TransportFor(config)
	must.Succeed(t, err)
	target, err := url.Parse(config.Host)
	must.Succeed(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	proxy.ModifyResponse = func(response *http.Response) error {
		response.Header.Set("Date", time.Now().Add(-ahead).UTC().Format(http.TimeFormat))
		return nil
	}
	server := httptest.NewServer(proxy)
	defer server.Close()
	for _, command := range []string{"status", "explain"} {
		got := e.runCommand(t, command, "ledger", "--server", server.URL)
		if !strings.Contains(got.stdout, "elected 10m ago") && command == "status" || strings.Contains(got.stderr, "has not shown that it runs") || got.status != 0 {
			t.Errorf("%s: got exit status %d, %s and\n%s\nwant the age in the cluster", command, got.status, got.stderr, got.stdout)
		}
	}
}
