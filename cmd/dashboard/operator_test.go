package main

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestPagesShowThatTheOperatorIsDown: the service account may read the Lease of the operator.
func TestPagesShowThatTheOperatorIsDown(t *testing.T) {
	e := newEnv(t)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "conclave-system", Name: operatorlease.Name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Now().Add(-3 * time.Minute)))},
	}
	e.create(lease)
	t.Cleanup(func() {
		if err := e.Delete(context.WithoutCancel(t.Context()), lease); err != nil {
			t.Error(err)
		}
	})
	e.start()
	token := e.token(e.user("alice"))
	b := e.browser()
	testwait.Until(t, "the pages show that the operator is down", func() bool { return strings.Contains(b.connection(token), `"silentSince":"20`) })
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
	must.Succeed(t, e.Update(t.Context(), lease))
	testwait.Until(t, "the pages show that the operator runs", func() bool { return b.connection(token) == `{"state":"connected"}` })
}

// connection returns the state of the connection, which a page gets first.
func (b *browser) connection(token string) string {
	b.e.t.Helper()
	ctx, cancel := context.WithCancel(b.e.t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost/events", http.NoBody)
	must.Succeed(b.e.t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := b.Do(request)
	must.Succeed(b.e.t, err)
	defer response.Body.Close()
	kind := ""
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			kind = name
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && kind == "connection" {
			return data
		}
	}
	return ""
}
