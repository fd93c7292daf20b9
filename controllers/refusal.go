package controllers

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusal is what the API server has against a write, for the status; the zero one
// is that it has nothing against any.
type refusal struct {
	// what was tried, and the kind of the answer.
	what   string
	reason metav1.StatusReason
	text   string
}

// refusalMax keeps a status readable, whatever a webhook answers.
const refusalMax = 500

// refusalOf is the refusal in an error, if there is one. A conflict is none: what was
// read was too old, and is read again.
func refusalOf(err error) (refusal, bool) {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return refusal{}, false
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	what, _, _ := strings.Cut(text, ": ")
	return refusal{what, answer.ErrStatus.Reason, cut(text, refusalMax)}, true
}

// next is the refusal after some more writes, of which these failed. While it is for
// the same, its words stay: an answer that has a number in it, another one each time,
// mustn't have the status be written each time.
func (r refusal) next(errs ...error) refusal {
	var all []refusal
	failed := false
	for _, err := range errs {
		failed = failed || err != nil
		if found, ok := refusalOf(err); ok {
			all = append(all, found)
		}
	}
	if len(all) == 0 {
		if failed {
			return r
		}
		return refusal{}
	}
	first := slices.MinFunc(all, func(a, b refusal) int { return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.text, b.text)) })
	if first.what == r.what && first.reason == r.reason {
		return r
	}
	return first
}

// cut is a text of at most so many bytes.
func cut(text string, most int) string {
	const dots = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}
