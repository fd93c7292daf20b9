package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRefusalStaysTheSame(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	label := func(pod string, cause error) error { return fmt.Errorf("label pod %s: %w", pod, cause) }
	forbidden := func(why string) error { return apierrors.NewForbidden(pods, "p", errors.New(why)) }
	var r refusal
	for _, step := range []struct {
		what string
		errs []error
		want string
	}{
		{"nothing is refused", nil, ""},
		{"nobody answers", []error{errors.New("connection refused")}, ""},
		{"what was read is too old", []error{apierrors.NewConflict(pods, "p", errors.New("changed"))}, ""},
		{"two are refused", []error{label("b", forbidden("no")), label("a", forbidden("try 1\nof 9"))}, `label pod a: pods "p" is forbidden: try 1 of 9`},
		{"in other words", []error{label("a", forbidden("try 2")), label("b", forbidden("no"))}, `label pod a: pods "p" is forbidden: try 1 of 9`},
		{"nobody answers meanwhile", []error{errors.New("connection refused")}, `label pod a: pods "p" is forbidden: try 1 of 9`},
		{"for another reason", []error{label("a", apierrors.NewBadRequest("odd"))}, "label pod a: odd"},
		{"for another pod", []error{label("b", apierrors.NewBadRequest("odd")), nil}, "label pod b: odd"},
		{"all is written", []error{nil}, ""},
	} {
		if r = r.next(step.errs...); r.text != step.want {
			t.Errorf("when %s, it is %q, and should be %q", step.what, r.text, step.want)
		}
	}
	if r = r.next(label("a", forbidden(strings.Repeat("ä", refusalMax)))); len(r.text) > refusalMax || !strings.HasSuffix(r.text, "ä...") {
		t.Errorf("it should be cut, and is %q", r.text)
	}
}
