package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestServicesArePermittedLater: without the permission for Services, groups work without them and say so. Groups get
// their Services when the permission comes, as in an installation that creates it after the manager.
func TestServicesArePermittedLater(t *testing.T) {
	e := newEnv(t)
	binding := &rbacv1.ClusterRoleBinding{}
	must.Succeed(t, e.get(binding, "", "conclave-services"))
	must.Succeed(t, e.Delete(t.Context(), binding))
	e.eventually("the permission has been withdrawn", e.mayNotReadServices)
	e.start()
	e.eventually("the manager is ready", e.ready)
	e.createGroupWithService("ledger")
	e.create(&v1.ElectionGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plain"},
		Spec:       v1.ElectionGroupSpec{Members: []v1.Member{{Pod: "plain-0", Priority: 1}}},
	})
	e.awaitStalled("ledger", string(v1.ReasonServicesForbidden))
	e.awaitStalled("plain", "")
	if err := e.get(&corev1.Service{}, "default", "ledger"); err == nil {
		t.Error("got a Service without the permission")
	}
	expect.Equalf(t, e.log.Contains("forbidden"), false, "permissions are missing, as the log says")

	binding.ResourceVersion = ""
	e.create(binding)
	e.eventually("the Service exists", func() error { return e.get(&corev1.Service{}, "default", "ledger") })
	e.awaitStalled("ledger", "")
	// Its watch works, too.
	must.Succeed(t,
		e.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ledger"}}))
	e.eventually("the Service exists again", func() error { return e.get(&corev1.Service{}, "default", "ledger") })

	// Without it, a new group gets its document, too. Its Service can't be read.
	must.Succeed(t, e.Delete(t.Context(), binding))
	e.eventually("the permission has been withdrawn", e.mayNotReadServices)
	e.createGroupWithService("fresh")
	e.awaitStalled("fresh", string(v1.ReasonServicesForbidden))
	e.awaitStalled("ledger", string(v1.ReasonServicesForbidden))

	// It may read them, as an account with the ClusterRole view, and the condition says what is missing.
	binding = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "conclave-view"}, Subjects: binding.Subjects}
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-view"}
	e.create(binding)
	e.eventually("the condition names the permission", func() error {
		group := &v1.ElectionGroup{}
		err := e.get(group, "default", "fresh")
		found := meta.FindStatusCondition(group.Status.Conditions, string(v1.ConditionStalled))
		if err == nil && (found == nil || !strings.Contains(found.Message, `cannot patch resource "services"`)) {
			err = fmt.Errorf("got %+v", found)
		}
		return err
	})
	e.awaitStalled("fresh", string(v1.ReasonServicesForbidden))
}

func (e *env) createGroupWithService(name string) {
	e.create(&v1.ElectionGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.ElectionGroupSpec{
			Members: []v1.Member{{Pod: name + "-0", Priority: 1}},
			Service: &v1.CoordinatorService{Name: name, Ports: []v1.ServicePort{{Port: 80}}},
		},
	})
}

func (e *env) mayNotReadServices() error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: account, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "services"},
	}}
	err := e.Create(e.t.Context(), review)
	if err == nil && review.Status.Allowed {
		err = errors.New("the manager may read Services")
	}
	return err
}

// awaitStalled waits until a group has a document, and the condition Stalled with a reason, or without one if that is
// "".
func (e *env) awaitStalled(name, reason string) {
	e.t.Helper()
	e.eventually("the group "+name+" has a document and is stalled by: "+reason, func() error {
		group := &v1.ElectionGroup{}
		if err := e.get(group, "default", name); err != nil {
			return err
		}
		got := ""
		if found := meta.FindStatusCondition(group.Status.Conditions, string(v1.ConditionStalled)); found != nil {
			got = found.Reason
		}
		if got != reason || group.Status.Protocol.Document == nil {
			return fmt.Errorf("got %q and document %v", got, group.Status.Protocol.Document)
		}
		return nil
	})
}
