package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// A manager that starts after the Secret of the CA was deleted creates no other CA, which
// running agents would not trust, until a user wants that.
func TestManagerDoesNotReplaceTheCAOfGroups(t *testing.T) {
	e := newEnv(t)
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ledger"}}
	group.Spec.Members = []v1.Member{{Pod: "ledger-0", Priority: 1}}
	e.create(group)
	group.Status.Protocol.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: group.Spec.Members}
	must.Succeed(t, e.Status().Update(t.Context(), group))
	e.start()
	e.eventually("the status reports the missing CA", func() error {
		if err := e.get(group, "default", "ledger"); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(group.Status.Conditions, string(v1.ConditionReady))
		if ready == nil || ready.Reason != string(v1.ReasonCAMissing) ||
			!strings.Contains(ready.Message, "kubectl create secret generic conclave-ca --namespace conclave-system") {
			return fmt.Errorf("got %+v", ready)
		}
		return nil
	})
	e.eventually("the manager has tried again", func() error {
		if strings.Count(e.log.String(), "cannot read CA Secret; retrying") < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	secret := &corev1.Secret{}
	if err := e.get(secret, namespace, authority.SecretName); !apierrors.IsNotFound(err) {
		t.Errorf("got Secret %+v (%v), want none", secret.Data, err)
	}
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: authority.SecretName}})
	e.eventually("the manager is ready", e.ready)
}
