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
