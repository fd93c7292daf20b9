// Package enroll is the identity service: agents show it the token of their pod,
// and get a certificate for that pod in its groups.
//
// Who asks is what the API server says about the token, and nothing else: the
// names in the certificate are those of the pod that the token is bound to, in
// the groups that this pod names. Of the request itself only the key counts.
//
// All is read from the API server itself, never from a cache: a pod that was
// replaced a moment ago must not get the certificate of its successor, nor wait
// for a cache that hasn't heard of it.
package enroll

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/inject"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups="",resources=pods,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get
// +kubebuilder:rbac:groups=conclave.dev,resources=electiongroups,verbs=get

// Authority signs.
type Authority interface {
	// Sign returns a certificate, and the authorities to be trusted, in PEM.
	Sign(ctx context.Context, names identity.Names, key crypto.PublicKey) (cert, bundle []byte, err error)
}

// Service answers agents.
type Service struct {
	// Client reads from the API server itself.
	Client    client.Client
	Authority Authority
	Log       *slog.Logger
}

// refusal is an answer that isn't one of success.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return r.reason }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// unavailable has the agent ask again. Its cause is for the log alone.
func unavailable(what string, err error) error {
	return fmt.Errorf("%w: %w", &refusal{http.StatusServiceUnavailable, what + ": ask again later"}, err)
}

// enrol goes from the token to the pod to its groups.
func (s *Service) enrol(ctx context.Context, e control.EnrollmentRequest) (*control.EnrollmentResponse, error) {
	key, err := keyOf(e.Request)
	if err != nil {
		return nil, err
	}
	holder, err := s.review(ctx, e.Token)
	if err != nil {
		return nil, err
	}
	groups, err := s.groups(ctx, holder)
	if err != nil {
		return nil, err
	}
	var names identity.Names
	for _, group := range groups {
		names = append(names, identity.Name{Domain: holder.namespace, Group: group, Member: holder.pod})
	}
	documents, err := s.documents(ctx, holder.namespace, groups)
	if err != nil {
		return nil, unavailable("the groups can't be read", err)
	}
	cert, bundle, err := s.Authority.Sign(ctx, names, key)
	if err != nil {
		return nil, unavailable("nothing can be signed now", err)
	}
	s.Log.Info("a certificate was given out", "namespace", holder.namespace, "pod", holder.pod, "groups", groups)
	return &control.EnrollmentResponse{Certificate: string(cert), CABundle: string(bundle), Documents: documents}, nil
}

// holder is the pod that a token is bound to.
type holder struct {
	namespace, pod, uid string
}

// review asks the API server whose token it is.
func (s *Service) review(ctx context.Context, token string) (holder, error) {
	if token == "" {
		return holder{}, refuse(http.StatusUnauthorized, "token is empty: it must be the pod's service-account token for the audience %s", v1.TokenAudience)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
		Token: token, Audiences: []string{v1.TokenAudience},
	}}
	if err := s.Client.Create(ctx, review); err != nil {
		return holder{}, unavailable("the API server can't review the token", err)
	}
	status := review.Status
	// An authenticator that knows nothing of audiences answers with none.
	if !status.Authenticated || !slices.Contains(status.Audiences, v1.TokenAudience) {
		return holder{}, refuse(http.StatusUnauthorized,
			"the API server doesn't accept this token: it must be a valid service-account token for the audience %s, of a pod that exists", v1.TokenAudience)
	}
	return holderOf(status.User)
}

// The API server's names for what a token is bound to.
const (
	podName = "authentication.kubernetes.io/pod-name"
	podUID  = "authentication.kubernetes.io/pod-uid"
)

func holderOf(user authenticationv1.UserInfo) (holder, error) {
	account, ok := strings.CutPrefix(user.Username, "system:serviceaccount:")
	namespace, _, separated := strings.Cut(account, ":")
	if !ok || !separated || namespace == "" {
		return holder{}, refuse(http.StatusForbidden, "this token is no service account's")
	}
	name, uid := user.Extra[podName], user.Extra[podUID]
	if len(name) != 1 || len(uid) != 1 || name[0] == "" || uid[0] == "" {
		return holder{}, refuse(http.StatusForbidden, "this token isn't bound to a pod: it must be one that the kubelet has put into the pod")
	}
	return holder{namespace: namespace, pod: name[0], uid: uid[0]}, nil
}

// groups are those that the pod takes part in.
func (s *Service) groups(ctx context.Context, h holder) ([]string, error) {
	var pod corev1.Pod
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: h.pod}, &pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse(http.StatusConflict, "pod %s/%s doesn't exist any more", h.namespace, h.pod)
	case err != nil:
		return nil, unavailable("the pod can't be read", err)
	case string(pod.UID) != h.uid:
		return nil, refuse(http.StatusConflict, "pod %s/%s has been replaced: this token is of the former one", h.namespace, h.pod)
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return nil, refuse(http.StatusConflict, "pod %s/%s has finished", h.namespace, h.pod)
	case pod.Labels[v1.LabelAgent] != v1.AgentEnabled:
		return nil, refuse(http.StatusForbidden, "pod %s/%s hasn't opted in: it must have the label %s=%s", h.namespace, h.pod, v1.LabelAgent, v1.AgentEnabled)
	}
	groups, err := inject.Groups(pod.Annotations[v1.AnnotationGroups])
	if err != nil {
		return nil, refuse(http.StatusForbidden, "pod %s/%s: %s", h.namespace, h.pod, err)
	}
	return groups, nil
}

// statusOf is what an agent is told about an error.
func statusOf(err error) (int, string) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status, r.reason
	}
	return http.StatusInternalServerError, "something is wrong here: ask again later"
}
