package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWriteErrorIsStable(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	label := func(pod string, cause error) error { return fmt.Errorf("label pod %s: %w", pod, cause) }
	forbidden := func(why string) error { return apierrors.NewForbidden(pods, "p", errors.New(why)) }
	var e writeError
	for _, step := range []struct {
		name string
		errs []error
		want string
	}{
		{"no error", nil, ""},
		{"no response", []error{errors.New("connection refused")}, ""},
		{"a conflict", []error{apierrors.NewConflict(pods, "p", errors.New("changed"))}, ""},
		{"two writes are rejected", []error{label("b", forbidden("no")), label("a", forbidden("try 1\nof 9"))}, `label pod a: pods "p" is forbidden: try 1 of 9`},
		{"with another text", []error{label("a", forbidden("try 2")), label("b", forbidden("no"))}, `label pod a: pods "p" is forbidden: try 1 of 9`},
		{"no response meanwhile", []error{errors.New("connection refused")}, `label pod a: pods "p" is forbidden: try 1 of 9`},
		{"for another reason", []error{label("a", apierrors.NewBadRequest("odd"))}, "label pod a: odd"},
		{"for another pod", []error{label("b", apierrors.NewBadRequest("odd")), nil}, "label pod b: odd"},
		{"all writes succeed", []error{nil}, ""},
	} {
		if e = e.next(step.errs...); e.text != step.want {
			t.Errorf("%s: got %q, want %q", step.name, e.text, step.want)
		}
	}
	if e = e.next(label("a", forbidden(strings.Repeat("ä", maxWriteError)))); len(e.text) > maxWriteError || !strings.HasSuffix(e.text, "ä...") {
		t.Errorf("got %q, want a truncated text", e.text)
	}
}

func TestPermissionForServicesIsMissing(t *testing.T) {
	for response, want := range map[string]bool{
		`User "manager" cannot patch resource "services" in API group "" in the namespace "bank"`:                       true,
		`User "manager" cannot patch resource "endpointslices" in API group "discovery.k8s.io" in the namespace "bank"`: true,
		`User "manager" cannot patch resource "pods" in API group "" in the namespace "bank"`:                           false,
		`exceeded quota: small, requested: services=1, used: services=9, limited: services=9`:                           false,
	} {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "front", errors.New(response))
		if got := (writeError{}).next(fmt.Errorf("apply Service front: %w", err)).servicesForbidden(); (got != nil) != want {
			t.Errorf("%s: got %+v, want a problem: %t", response, got, want)
		}
	}
}
