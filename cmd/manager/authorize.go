package main

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// authorized serves requests whose bearer token the API server accepts, of users that it permits
// this path. controller-runtime has a filter that does the same. It isn't used, because it links
// the library of the API server, with gRPC: 20 MiB.
type authorized struct {
	api     client.Client
	handler http.Handler
	log     *slog.Logger

	mu sync.Mutex
	// permitted is until when a request is permitted without asking again.
	permitted map[permission]time.Time
}

// permission identifies a request by the digest of its token.
type permission struct {
	token        [sha256.Size]byte
	method, path string
}

const (
	// permissionTTL is how long a token that was revoked, or lost its permission, can still be used.
	permissionTTL = time.Minute
	// maxPermissions bounds the memory: there are few clients.
	maxPermissions = 64
)

// ServeHTTP implements http.Handler.
func (a *authorized) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		http.Error(w, "the request must have a bearer token", http.StatusUnauthorized)
		return
	}
	key := permission{sha256.Sum256([]byte(token)), r.Method, r.URL.Path}
	if !a.isPermitted(key) {
		status, reason, err := a.review(r.Context(), token, key)
		if err != nil {
			a.log.Error("cannot authorize a client of the metrics", "error", err)
		}
		if status != http.StatusOK {
			http.Error(w, reason, status)
			return
		}
		a.permit(key)
	}
	a.handler.ServeHTTP(w, r)
}

// review asks the API server who the client is, and whether this user may send the request.
func (a *authorized) review(ctx context.Context, token string, key permission) (status int, reason string, err error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := a.api.Create(ctx, who); err != nil {
		return http.StatusInternalServerError, "the API server cannot review the token", err
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, "the API server doesn't accept this token", nil
	}
	user := who.Status.User
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: key.path, Verb: strings.ToLower(key.method)},
	}}
	for name, values := range user.Extra {
		may.Spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	if err := a.api.Create(ctx, may); err != nil {
		return http.StatusInternalServerError, "the API server cannot review the access", err
	}
	if !may.Status.Allowed || may.Status.Denied {
		return http.StatusForbidden,
			user.Username + " has no permission to " + strings.ToLower(key.method) + " " + key.path, nil
	}
	return http.StatusOK, "", nil
}

func (a *authorized) isPermitted(key permission) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.permitted[key])
}

func (a *authorized) permit(key permission) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.permitted == nil || len(a.permitted) >= maxPermissions {
		a.permitted = map[permission]time.Time{}
	}
	a.permitted[key] = time.Now().Add(permissionTTL)
}
