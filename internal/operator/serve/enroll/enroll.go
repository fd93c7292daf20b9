// Package enroll is the identity service. An agent sends the token of its pod, and
// receives a certificate for that pod in the groups that the pod names.
//
// The service identifies the pod by a TokenReview only. The names in the certificate are those of the pod that the
// token is bound to, in the groups that the annotation conclave.dev/groups of that pod names or, without it, in those
// that select the pod. Of the certificate request, the service uses nothing but the public key.
//
// The service reads all objects from the API server, never from a cache. A cache may
// be outdated: a pod that was replaced a moment ago must not receive the certificate
// of its successor, and a new pod must not wait until a cache knows it.
package enroll

import (
	"context"
	"crypto"
	"log/slog"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;patch
// +kubebuilder:rbac:groups=conclave.dev,resources=electiongroups,verbs=get

// Signer signs certificates.
type Signer interface {
	// Sign issues a certificate for the public key of an agent in the pod with a UID. It
	// returns the certificate and the CA bundle, both in PEM.
	Sign(ctx context.Context, names identity.Names, uid string, key crypto.PublicKey) (cert, bundle []byte, err error)
}

// Service issues certificates to agents.
type Service struct {
	// Namespace is that of the operator, which has the witnesses.
	Namespace string
	// Client reads from the API server, not from a cache.
	Client client.Client
	Signer Signer
	Log    *slog.Logger
	// Refusals has why the latest enrollments were refused.
	Refusals *Refusals
	// Count, if it isn't nil, is called with the result of each enrollment.
	Count func(Result)
}

// enroll reads the groups of a pod that its token has identified, and issues a certificate.
func (s *Service) enroll(ctx context.Context, pod podIdentity,
	key crypto.PublicKey,
) (*control.EnrollmentResponse, error) {
	found, groups, err := s.groups(ctx, pod)
	if err != nil {
		return nil, err
	}
	existing, err := s.existingGroups(ctx, pod.namespace, groups)
	if err != nil {
		return nil, unavailable("cannot read the groups", err)
	}
	if membership.BySelection(found) && !v1.IsWitness(pod.name) {
		// The annotation may be outdated, or edited: the groups themselves decide.
		existing = slices.DeleteFunc(existing,
			func(group *v1.ElectionGroup) bool { return !membership.TakesPart(group)(found) })
		if len(existing) == 0 {
			return nil, noGroupSelects(pod)
		}
		groups = groupNames(existing)
	}
	if err := s.hold(ctx, found, existing); err != nil {
		return nil, err
	}
	var names identity.Names
	for _, group := range groups {
		names = append(names, identity.Name{Domain: pod.namespace, Group: group, Member: pod.name})
	}
	if v1.IsWitness(pod.name) {
		names = identity.Names{control.Witness(pod.name)}
	}
	cert, bundle, err := s.Signer.Sign(ctx, names, pod.uid, key)
	if err != nil {
		return nil, unavailable("cannot sign the certificate", err)
	}
	s.Log.Info("issued certificate", "namespace", pod.namespace, "pod", pod.name, "groups", groups)
	return &control.EnrollmentResponse{Certificate: string(cert), CABundle: string(bundle)}, nil
}

// podIdentity identifies the pod that a token is bound to.
type podIdentity struct {
	namespace, name, uid string
}

// review asks the API server which pod a token is bound to.
func (s *Service) review(ctx context.Context, token string) (podIdentity, error) {
	if token == "" {
		return podIdentity{}, refuse(TokenRejected,
			"token is empty: it must be the pod's service account token for the audience %s", v1.TokenAudience)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
		Token: token, Audiences: []string{v1.TokenAudience},
	}}
	if err := s.Client.Create(ctx, review); err != nil {
		return podIdentity{}, unavailable("the API server cannot review the token", err)
	}
	status := review.Status
	// An authenticator that doesn't support audiences returns none.
	if !status.Authenticated || !slices.Contains(status.Audiences, v1.TokenAudience) {
		return podIdentity{}, refuse(TokenRejected,
			"the API server doesn't accept this token: it must be a valid service account token for the audience %s, bound to "+
				"a pod that exists", v1.TokenAudience)
	}
	return podIdentityOf(status.User)
}

// The keys by which the API server reports the pod that a token is bound to.
const (
	podName = "authentication.kubernetes.io/pod-name"
	podUID  = "authentication.kubernetes.io/pod-uid"
)

func podIdentityOf(user authenticationv1.UserInfo) (podIdentity, error) {
	account, ok := strings.CutPrefix(user.Username, "system:serviceaccount:")
	namespace, _, separated := strings.Cut(account, ":")
	if !ok || !separated || namespace == "" {
		return podIdentity{}, refuse(TokenWithoutPod, "this token isn't a service account token")
	}
	name, uid := user.Extra[podName], user.Extra[podUID]
	if len(name) != 1 || len(uid) != 1 || name[0] == "" || uid[0] == "" {
		return podIdentity{},
			refuse(TokenWithoutPod, "this token isn't bound to a pod: it must be a token that the kubelet mounted into the pod")
	}
	return podIdentity{namespace: namespace, name: name[0], uid: uid[0]}, nil
}

// groups returns the pod, and the names of the groups that it takes part in.
func (s *Service) groups(ctx context.Context, p podIdentity) (*corev1.Pod, []string, error) {
	pod := &corev1.Pod{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: p.name}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, refuse(PodGone, "pod %s/%s no longer exists", p.namespace, p.name)
	case err != nil:
		return nil, nil, unavailable("cannot read the pod", err)
	case string(pod.UID) != p.uid:
		return nil, nil,
			refuse(PodGone, "pod %s/%s has been replaced: this token is bound to the former pod", p.namespace, p.name)
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return nil, nil, refuse(PodGone, "pod %s/%s has finished", p.namespace, p.name)
	case pod.Labels[v1.LabelAgent] != v1.AgentEnabled:
		return nil, nil, refuse(NotOptedIn, "pod %s/%s hasn't opted in: it must have the label %s=%s", p.namespace, p.name,
			v1.LabelAgent, v1.AgentEnabled)
	case v1.IsWitness(pod.Name) && p.namespace != s.Namespace:
		return nil, nil, refuse(NotOptedIn,
			"names that begin with %s are those of the operator's witnesses: rename pod %s/%s", v1.WitnessPrefix, p.namespace,
			p.name)
	case v1.IsWitness(pod.Name):
		return pod, nil, nil
	}
	named := v1.GroupsAnnotation(pod.Annotations)
	if membership.BySelection(pod) && named == "" {
		return nil, nil, noGroupSelects(p)
	}
	groups, err := inject.Groups(named)
	if err != nil {
		return nil, nil, refuse(InvalidAnnotation, "pod %s/%s: %s", p.namespace, p.name, err)
	}
	return pod, groups, nil
}

func noGroupSelects(p podIdentity) error {
	return refuse(NoGroup, "no ElectionGroup in namespace %s selects pod %s yet", p.namespace, p.name)
}
