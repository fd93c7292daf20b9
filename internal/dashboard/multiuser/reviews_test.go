package multiuser

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reviews is an API server that accepts every token, denies all rights except in the namespace "own", and
// counts the reviews of each user.
type reviews struct {
	client.Writer

	counts sync.Map // by the name of the user: *atomic.Int64
}

func (r *reviews) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	switch review := object.(type) {
	case *authenticationv1.TokenReview:
		review.Status.Authenticated = true
		review.Status.User.Username = review.Spec.Token
	case *authorizationv1.SubjectAccessReview:
		review.Status.Allowed = review.Spec.ResourceAttributes.Namespace == "own"
		r.count(review.Spec.User).Add(1)
	}
	return nil
}

func (r *reviews) count(user string) *atomic.Int64 {
	counter, _ := r.counts.LoadOrStore(user, &atomic.Int64{})
	return counter.(*atomic.Int64) //nolint:errcheck,forcetypeassert // It is one.
}

func authenticated(t *testing.T, r *reviewer, name string) *user {
	t.Helper()
	u, err := r.authenticate(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestUsersTakeTurnsWithReviews: alice has twenty pages and may see none of a thousand namespaces. bob has one
// page, and waits for few of her reviews.
func TestUsersTakeTurnsWithReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &reviews{}
		r := newReviewer(server, nil, func() int { return 0 })
		r.questions.pace = rate.NewLimiter(rightsPerSecond, 1)
		alice, bob := authenticated(t, r, "alice"), authenticated(t, r, "bob")
		ctx, cancel := context.WithCancel(t.Context())
		var pages sync.WaitGroup
		for page := range 20 {
			pages.Go(func() {
				var namespaces []string
				for i := range 1000 {
					namespaces = append(namespaces, fmt.Sprint("n", page, "-", i))
				}
				_, _ = r.scope(ctx, alice, namespaces) // It is canceled.
			})
		}
		time.Sleep(5 * time.Second)
		before, began := server.count("alice").Load(), time.Now()
		if _, err := r.scope(t.Context(), bob, []string{"a", "b", "c"}); err != nil {
			t.Fatal(err)
		}
		others, took := server.count("alice").Load()-before, time.Since(began)
		if before == 0 || others > 4*reviewsPerUserMax || took > time.Second {
			t.Errorf("alice got %d reviews, and then %d during the %d of bob, which took %s: want them to take turns",
				before, others, server.count("bob").Load(), took)
		}
		cancel()
		pages.Wait()
	})
}

// TestConfirmationsHaveTheirOwnLane: a hundred users ask for rights. bob's page needs the confirmation of a right
// that he had.
func TestConfirmationsHaveTheirOwnLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewer(&reviews{}, nil, func() int { return 0 })
		r.questions.pace = rate.NewLimiter(rightsPerSecond, 1)
		bob := authenticated(t, r, "bob")
		expect := func() {
			t.Helper()
			if granted, err := r.may(t.Context(), bob, "own", "", "list", "watch"); !granted || err != nil {
				t.Errorf("got %v and %v, want the right", granted, err)
			}
		}
		expect()
		ctx, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		for i := range 100 {
			u := authenticated(t, r, fmt.Sprint("u", i))
			others.Go(func() { _, _ = r.scope(ctx, u, []string{"a", "b", "c", "d", "e", "f", "g", "h"}) })
		}
		time.Sleep(time.Second) // The others wait for most of their reviews.
		asked := time.Now()
		r.rights.Add(right{bob.id, "list", "own", ""}, &decision{true, asked.Add(-grantedFor)})
		expect()
		if took := time.Since(asked); took > 100*time.Millisecond {
			t.Errorf("a confirmation took %s while others asked, want it at once", took)
		}
		cancel()
		others.Wait()
	})
}

// TestReviewsKeepUp: whatever the number of remembered answers, the permitted rate suffices to ask for
// all of them again before they expire.
func TestReviewsKeepUp(t *testing.T) {
	for remembered := 1; remembered <= rightsMax; remembered *= 2 {
		if perSecond := float64(remembered) / validity(false, remembered).Seconds(); perSecond > 0.7*rightsPerSecond {
			t.Errorf("%d denied rights need %.0f reviews per second, want at most seven tenths of %d", remembered, perSecond, rightsPerSecond)
		}
	}
	for remembered, want := range map[int]time.Duration{4000: time.Minute, 50_000: 750 * time.Second} {
		if got := validity(false, remembered); got != want {
			t.Errorf("with %d answers: got %s for a denied right, want %s", remembered, got, want)
		}
	}
	if got := validity(true, rightsMax); got != grantedFor {
		t.Errorf("got %s for a granted right, want %s", got, grantedFor)
	}
}

// TestStreamEndsIfRightsRemainUncertain: the API server hangs.
func TestStreamEndsIfRightsRemainUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Client: &reviews{}})
		id := &identity{authenticated(t, s.reviewer, "alice"), "alice", nil}
		began := time.Now()
		s.supervise(t.Context(), id, func(ctx context.Context, _ *user) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		})
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the stream ended after %s, want at most a minute", took)
		}
	})
}
