package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
		review.Status.Allowed = review.Spec.User != "stranger" && asked.Path == "/metrics" && asked.Verb == "get" && review.Spec.Extra["scopes"][0] == "metrics"
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
		a := &authorized{api: api, log: slog.New(slog.DiscardHandler), handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		expect := func(method, header string, want, requests int) {
			t.Helper()
			before := api.requests
			r := httptest.NewRequestWithContext(t.Context(), method, "/metrics", nil)
			r.Header.Set("Authorization", header)
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code != want || api.requests-before != requests {
				t.Errorf("%s with %q: got status %d after %d requests, want %d after %d", method, header, w.Code, api.requests-before, want, requests)
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
