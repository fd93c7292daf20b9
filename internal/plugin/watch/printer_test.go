package watch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestHangingAPIServerIsNotTheOperator: nothing is known about the operator while the API server doesn't answer.
func TestHangingAPIServerIsNotTheOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		var got strings.Builder
		p := printer{notes: &got}
		p.observeOperator(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
			if at := time.Since(start); at > 10*time.Second && at < 40*time.Second {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())}}, nil
		}, time.Now)
		const want = "cannot watch the group; retrying: the API server does not respond\nthe API server is reachable again\n"
		expect.Equal(t, got.String(), want)
	})
}

// TestWatchNoticesThatTheOperatorIsSilent: nobody updates a status that is watched. While the
// Lease can't be read, nothing is known.
func TestWatchNoticesThatTheOperatorIsSilent(t *testing.T) {
	now := time.Now()
	renewed := metav1.NewMicroTime(now.Add(-10 * time.Minute))
	for want, err := range map[string]error{
		"The operator has not shown that it runs for 10m. ": nil,
		"": errors.New("forbidden"), // without the right to read the Lease
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var got strings.Builder
		p := printer{notes: &got}
		p.observeOperator(ctx, func(context.Context) (*coordinationv1.Lease, error) {
			cancel() // It observes once.
			return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}, err
		}, func() time.Time { return now })
		if !strings.HasPrefix(got.String(), want) || (got.Len() == 0) != (want == "") {
			t.Errorf("with error %v: got %q, want %q", err, got.String(), want)
		}
	}
}

// TestLostConnectionIsPrintedOnce: nothing else shows why there are no changes. It can't be repaired if access is
// denied.
func TestLostConnectionIsPrintedOnce(t *testing.T) {
	var got strings.Builder
	p := printer{notes: &got}
	p.Connected()
	for range 3 {
		expect.Succeedf(t, p.Failed(errors.New("connection refused")), "it tries again")
	}
	p.Connected()
	p.Connected()
	const want = "cannot watch the group; retrying: connection refused\nthe API server is reachable again\n"
	expect.Equal(t, got.String(), want)
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "electiongroups"}, "", errors.New("no right"))
	if err := p.Failed(denied); err == nil || !strings.Contains(err.Error(), "is forbidden") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("got error %v, want one line with: is forbidden", err)
	}
}
