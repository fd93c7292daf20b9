package watch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHangingAPIServerIsNotTheOperator: nothing is known about the operator while the API server doesn't answer.
func TestHangingAPIServerIsNotTheOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		var got []string
		w := operatorWatcher{
			now: time.Now,
			read: func(ctx context.Context) (*coordinationv1.Lease, error) {
				if at := time.Since(start); at > 10*time.Second && at < 40*time.Second {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())}}, nil
			},
			onChange:     func(since time.Time) { got = append(got, operatorText(since, time.Now())) },
			onConnection: func(err error) { got = append(got, connectionText(err)) },
		}
		w.run(ctx)
		want := []string{"cannot watch the group; retrying: the API server does not respond", "the API server is reachable again"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestWatchNoticesThatTheOperatorIsSilent: nobody updates a status that is watched. While the
// Lease can't be read, nothing is known.
func TestWatchNoticesThatTheOperatorIsSilent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	renewed := metav1.NewMicroTime(now.Add(-10 * time.Minute))
	var got []string
	w := operatorWatcher{
		now: func() time.Time { return now },
		read: func(context.Context) (*coordinationv1.Lease, error) {
			cancel() // It observes once.
			return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}, nil
		},
		onChange: func(since time.Time) { got = append(got, operatorText(since, now)) },
	}
	w.run(ctx)
	const want = "The operator has not shown that it runs for 10m. "
	if len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("got %q, want %q", got, want)
	}
	s := screen{silentSince: renewed.Time}
	if got := strings.Join(s.lines(now, 200, 24), "\n"); !strings.Contains(got, want) {
		t.Errorf("on a terminal: got %q, want %q in it", got, want)
	}

	ctx, cancel = context.WithCancel(t.Context())
	w.read = func(context.Context) (*coordinationv1.Lease, error) {
		cancel()
		return nil, errors.New("forbidden")
	}
	got = nil
	if w.run(ctx); got != nil {
		t.Errorf("without the right to read the Lease: got %q, want nothing", got)
	}
}
