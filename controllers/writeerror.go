package controllers

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writeError is the API server's reason for rejecting a write, for the status. The zero
// value means that it has rejected none.
type writeError struct {
	// operation is what was rejected, and reason the kind of error.
	operation string
	reason    metav1.StatusReason
	text      string
}

// maxWriteError bounds the text in the status, whatever a webhook responds.
const maxWriteError = 500

// newWriteError returns the writeError for an error, if the API server has rejected
// the write. A conflict doesn't count: the next reconcile reads the object again.
func newWriteError(err error) (writeError, bool) {
	rejected, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return writeError{}, false
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	operation, _, _ := strings.Cut(text, ": ")
	return writeError{operation, rejected.ErrStatus.Reason, truncate(text, maxWriteError)}, true
}

// next returns the writeError after further writes, with their errors. As long as the
// operation and the reason stay the same, it retains the text: otherwise a response
// with a number that changes each time would change the status each time.
func (e writeError) next(errs ...error) writeError {
	var all []writeError
	failed := false
	for _, err := range errs {
		failed = failed || err != nil
		if found, ok := newWriteError(err); ok {
			all = append(all, found)
		}
	}
	if len(all) == 0 {
		if failed {
			return e
		}
		return writeError{}
	}
	first := slices.MinFunc(all, func(a, b writeError) int {
		return cmp.Or(cmp.Compare(a.operation, b.operation), cmp.Compare(a.text, b.text))
	})
	if first.operation == e.operation && first.reason == e.reason {
		return e
	}
	return first
}

// notPermitted matches the response of the API server's authorization. Quotas and admission have the same code, but
// other texts.
var notPermitted = regexp.MustCompile(`: User ".*" cannot \w+ resource "(services|endpointslices)"`)

// servicesDenied reports whether the operator lacks a permission that its role for Services has.
func (e writeError) servicesDenied() bool {
	return e.reason == metav1.StatusReasonForbidden && notPermitted.MatchString(e.text)
}

// truncate shortens a text to at most limit bytes.
func truncate(text string, limit int) string {
	const ellipsis = "..."
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}
