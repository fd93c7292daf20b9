package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/manifests"
)

// TestManagerServesOnlySomeNamespaces runs the manager with permissions for two
// namespaces.
func TestManagerServesOnlySomeNamespaces(t *testing.T) {
	e := newEnvOf(t, namespacedOverlay(t))
	for _, in := range []string{"bank", "shop", "other"} {
		e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in}})
	}
	e.create(template(t, "reviews_binding.yaml"))
	for _, in := range []string{"bank", "shop"} {
		binding := template(t, "role_binding.yaml")
		binding.SetNamespace(in)
		e.create(binding)
	}
	for _, in := range []string{"bank", "shop", "other"} {
		group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "ledger"}}
		group.Spec.Members = []v1.Member{{Pod: "ledger-0", Priority: 1}}
		group.Spec.Service = &v1.CoordinatorService{Name: "ledger", Ports: []v1.ServicePort{{Port: 80}}}
		e.create(group)
	}
	byNode := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "zones"}}
	byNode.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "zones"}}
	byNode.Spec.PriorityFrom = &v1.PriorityFrom{NodeLabel: "zone"}
	e.create(byNode)
	stop := e.start("--watch-namespaces", "bank,shop")
	e.eventually("the manager is ready", e.ready)
	for _, in := range []string{"bank", "shop"} {
		e.eventually("the Service exists in "+in, func() error { return e.get(&corev1.Service{}, in, "ledger") })
		if err := e.get(&corev1.ConfigMap{}, in, control.ConfigMapName("ledger")); err != nil {
			t.Error(err)
		}
	}
	e.eventually("the status explains that nodes can't be read", func() error {
		if err := e.get(byNode, "bank", "zones"); err != nil {
			return err
		}
		if ready := meta.FindStatusCondition(byNode.Status.Conditions, string(v1.ConditionReady)); ready == nil || !strings.Contains(ready.Message, "can't read nodes") {
			return fmt.Errorf("got %+v", ready)
		}
		return nil
	})
	e.trustSecret(t)
	if status, text := e.enroll(t, "bank"); status != http.StatusOK {
		t.Errorf("enrollment in a watched namespace: got %d %s, want %d", status, text, http.StatusOK)
	}
	if status, text := e.enroll(t, "other"); status != http.StatusForbidden || !strings.Contains(text, "doesn't serve namespace other, only bank, shop") {
		t.Errorf("enrollment in another namespace: got %d %s, want %d", status, text, http.StatusForbidden)
	}
	if e.log.Contains("forbidden") {
		t.Error("got \"forbidden\" in the log, want sufficient permissions")
	}
	e.expectNoAccess(t)
	stop()
	for _, object := range []client.Object{&corev1.Service{}, &corev1.ConfigMap{}} {
		for _, name := range []string{"ledger", control.ConfigMapName("ledger")} {
			if err := e.get(object, "other", name); !apierrors.IsNotFound(err) {
				t.Errorf("%T %s in another namespace: got error %v, want none there", object, name, err)
			}
		}
	}
}

// TestManagerServesOtherNamespaces: one of its namespaces was deleted, and later created again.
func TestManagerServesOtherNamespaces(t *testing.T) {
	e := newEnvOf(t, namespacedOverlay(t))
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bank"}})
	e.create(template(t, "reviews_binding.yaml"))
	bind := func(in string) {
		binding := template(t, "role_binding.yaml")
		binding.SetNamespace(in)
		e.create(binding)
	}
	bind("bank")
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	group.Spec.Members = []v1.Member{{Pod: "ledger-0", Priority: 1}}
	e.create(group)
	e.start("--watch-namespaces", "bank,shop")
	e.eventually("the manager is ready", e.ready)
	e.eventually("the ConfigMap exists", func() error { return e.get(&corev1.ConfigMap{}, "bank", control.ConfigMapName("ledger")) })
	logs := func(text string) func() error {
		return func() error {
			if !e.log.Contains(text) {
				return fmt.Errorf("got no %q in the log", text)
			}
			return nil
		}
	}
	if err := logs("cannot serve namespaces, because the RoleBinding conclave-manager-groups is missing in them")(); err != nil {
		t.Error(err)
	}
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	bind("shop")
	e.eventually("the manager ends", logs("exiting to restart with additional namespaces"))
}

// expectNoAccess checks that the account of the manager has no access to other namespaces,
// and none to nodes.
func (e *env) expectNoAccess(t *testing.T) {
	t.Helper()
	for what, err := range map[string]error{
		"list nodes":             e.asManager.List(t.Context(), &corev1.NodeList{}),
		"list all pods":          e.asManager.List(t.Context(), &corev1.PodList{}),
		"list pods":              e.asManager.List(t.Context(), &corev1.PodList{}, client.InNamespace("other")),
		"read a ConfigMap":       e.asManager.Get(t.Context(), client.ObjectKey{Namespace: "other", Name: "a"}, &corev1.ConfigMap{}),
		"read a group":           e.asManager.Get(t.Context(), client.ObjectKey{Namespace: "other", Name: "ledger"}, &v1.ElectionGroup{}),
		"create a ConfigMap":     e.asManager.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "conclave-a"}}),
		"delete a Service":       e.asManager.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "a"}}),
		"read Secrets of a bank": e.asManager.List(t.Context(), &corev1.SecretList{}, client.InNamespace("bank")),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got error %v, want it forbidden", what, err)
		}
	}
}

// namespacedOverlay returns a folder with config/default and the component for some
// namespaces.
func namespacedOverlay(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	config, err := filepath.Abs("../../config")
	if err == nil {
		config, err = filepath.Rel(folder, config) // kustomize accepts relative paths only.
	}
	if err == nil {
		overlay := fmt.Sprintf("resources: [%[1]s/default]\ncomponents: [%[1]s/namespaced]\n", config)
		err = os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(overlay), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// template returns the object in a file that is copied for each operator or namespace.
func template(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../config/namespaced", file))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.Parse(text)
	if err != nil || len(objects) != 1 {
		t.Fatalf("%s: got %d objects (%v), want one", file, len(objects), err)
	}
	return objects[0]
}

// trustSecret makes requests trust the CA in the Secret: there is no webhook configuration.
func (e *env) trustSecret(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := e.get(secret, namespace, authority.SecretName); err != nil {
		t.Fatal(err)
	}
	if e.caBundle = secret.Data["ca.crt"]; len(e.caBundle) == 0 {
		t.Fatal("the Secret has no CA")
	}
}
