package multiuser

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/net/fair"
)

// errRefused is the error of a token that the API server doesn't accept. All other errors
// are temporary: the API server didn't respond.
var errRefused = errors.New("the API server doesn't accept this token: it has expired, was revoked, or is for another audience")

// How long an answer of the API server is used. A right that was granted may become visible
// later than one that was revoked becomes invisible: see validity.
const (
	grantedFor = 10 * time.Second
	deniedFor  = time.Minute
)

// The number of answers that are remembered. Those that were used least recently are
// forgotten, and asked for again.
const (
	tokensMax = 1 << 10
	rightsMax = 1 << 16
)

// The rate of SubjectAccessReviews, which bounds what users can cost the API server.
const (
	rightsPerSecond = 100
	rightsBurst     = 2000
)

// Users take turns with reviews: one who may see few of many namespaces has many.
const (
	reviewsMax        = 16
	reviewsPerUserMax = 8
)

// lane is where reviews wait. Those that confirm a right have one of their own, because a page ends
// without them.
type lane struct {
	turns *fair.Semaphore[string] // by the name of the user
	pace  *rate.Limiter
}

func newLane() lane {
	return lane{fair.NewSemaphore[string](reviewsMax, reviewsPerUserMax), rate.NewLimiter(rightsPerSecond, rightsBurst)}
}

// wait waits until the user may have a review, which the caller must release.
func (l *lane) wait(ctx context.Context, u *user) (release func(), err error) {
	release, err = l.turns.Acquire(ctx, u.Username)
	if err != nil {
		return nil, err
	}
	if err := l.pace.Wait(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// reviewTimeout bounds one review.
const reviewTimeout = 10 * time.Second

// reviewer asks the API server whose a token is, and what its owner may do.
type reviewer struct {
	client client.Writer
	// audiences are those that a token may be for; none means those of the API server.
	audiences []string

	tokens *lru.Cache // of the hashes of accepted tokens: *acceptance
	rights *lru.Cache // of right: *decision

	questions, confirmations lane
	// users returns the number of users with open pages. pairs is that times the number of
	// namespaces with groups.
	users func() int
	pairs atomic.Int64
}

func newReviewer(c client.Writer, audiences []string, users func() int) *reviewer {
	return &reviewer{
		client: c, audiences: audiences, tokens: lru.New(tokensMax), rights: lru.New(rightsMax),
		questions: newLane(), confirmations: newLane(), users: users,
	}
}

// digest identifies a secret or a user.
type digest [sha256.Size]byte

// user is an authenticated user.
type user struct {
	authenticationv1.UserInfo

	// id identifies all attributes of the user on which rights may depend.
	id digest
}

type acceptance struct {
	user *user
	at   time.Time
}

// knows reports whether the API server has accepted this token before.
func (r *reviewer) knows(token string) bool {
	_, ok := r.tokens.Get(digest(sha256.Sum256([]byte(token))))
	return ok
}

// authenticate returns the user of a token.
func (r *reviewer) authenticate(ctx context.Context, token string) (*user, error) {
	key := digest(sha256.Sum256([]byte(token)))
	if found, ok := r.tokens.Get(key); ok {
		if a, ok := found.(*acceptance); ok && time.Since(a.at) < grantedFor {
			return a.user, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: r.audiences}}
	if err := r.client.Create(ctx, review); err != nil {
		return nil, fmt.Errorf("cannot review the token: %w", err)
	}
	inAudience := func(a string) bool { return slices.Contains(r.audiences, a) }
	// An authenticator that doesn't know audiences returns none.
	if s := review.Status; !s.Authenticated || len(r.audiences) > 0 && !slices.ContainsFunc(s.Audiences, inAudience) {
		r.tokens.Remove(key)
		return nil, errRefused
	}
	text, err := json.Marshal(review.Status.User)
	if err != nil {
		return nil, err
	}
	u := &user{UserInfo: review.Status.User, id: sha256.Sum256(text)}
	r.tokens.Add(key, &acceptance{u, time.Now()})
	return u, nil
}

// right is to use a verb on ElectionGroups: all, those of a namespace, or one.
type right struct {
	user                  digest
	verb, namespace, name string
}

type decision struct {
	granted bool
	at      time.Time
}

// may reports whether a user has the right to use all of these verbs.
func (r *reviewer) may(ctx context.Context, u *user, namespace, name string, verbs ...string) (bool, error) {
	for _, verb := range verbs {
		granted, err := r.decide(ctx, u, right{u.id, verb, namespace, name})
		if !granted || err != nil {
			return false, err
		}
	}
	return true, nil
}

// validity returns how long an answer is used. Denied rights are the many ones: each user has one for each
// namespace of others. The more there are, the longer they are used, so that two thirds of
// the permitted rate suffice to ask for all of them again.
func validity(granted bool, pairs int) time.Duration {
	if granted {
		return grantedFor
	}
	return max(deniedFor, time.Duration(min(pairs, rightsMax))*time.Second*3/(2*rightsPerSecond))
}

func (r *reviewer) decide(ctx context.Context, u *user, wanted right) (bool, error) {
	lane := &r.questions
	if found, ok := r.rights.Get(wanted); ok {
		d, ok := found.(*decision)
		switch {
		case ok && time.Since(d.at) < validity(d.granted, int(r.pairs.Load())):
			return d.granted, nil
		case ok && d.granted:
			lane = &r.confirmations
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	release, err := lane.wait(ctx, u)
	if err != nil {
		return false, fmt.Errorf("too many rights to review: %w", err)
	}
	defer release()
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range u.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: v1.GroupVersion.Group, Version: v1.GroupVersion.Version, Resource: "electiongroups",
			Verb: wanted.verb, Namespace: wanted.namespace, Name: wanted.name,
		},
	}}
	if err := r.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("cannot review the rights of %s: %w", u.Username, err)
	}
	granted := review.Status.Allowed && !review.Status.Denied
	r.rights.Add(wanted, &decision{granted, time.Now()})
	return granted, nil
}

// scope is which namespaces a user may see.
type scope struct {
	all        bool
	namespaces map[string]bool
}

func (s scope) contains(namespace string) bool { return s.all || s.namespaces[namespace] }

// scope returns which of these namespaces have groups that a user may list and watch.
func (r *reviewer) scope(ctx context.Context, u *user, namespaces []string) (scope, error) {
	s := scope{namespaces: map[string]bool{}}
	all, err := r.may(ctx, u, "", "", "list", "watch")
	if s.all = all; all || err != nil {
		return s, err
	}
	r.pairs.Store(int64(r.users() * len(namespaces)))
	var (
		mu    sync.Mutex
		tasks errgroup.Group
	)
	tasks.SetLimit(reviewsPerUserMax)
	for _, namespace := range namespaces {
		tasks.Go(func() error {
			granted, err := r.may(ctx, u, namespace, "", "list", "watch")
			if granted {
				mu.Lock()
				defer mu.Unlock()
				s.namespaces[namespace] = true
			}
			return err
		})
	}
	return s, tasks.Wait()
}
