// Package expect compares what a test got with what it wants. If they differ, the test has failed, but goes on; package
// must is for what the test can't go on without.
//
// The functions whose names end in f take a text, formatted as by fmt.Sprintf, that says what was compared.
package expect

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Equal expects that two values are the same.
func Equal[T comparable](t testing.TB, got, want T) {
	if got != want {
		t.Helper()
		report(t, "", got, "", want)
	}
}

// Equalf is Equal with a text.
func Equalf[T comparable](t testing.TB, got, want T, format string, args ...any) {
	if got != want {
		t.Helper()
		report(t, fmt.Sprintf(format, args...), got, "", want)
	}
}

// EqualSlicesf expects the same elements in the same order. It doesn't distinguish nil from an empty slice.
func EqualSlicesf[S ~[]E, E comparable](t testing.TB, got, want S, format string, args ...any) {
	if !slices.Equal(got, want) {
		t.Helper()
		report(t, fmt.Sprintf(format, args...), got, "", want)
	}
}

// DeepEqualf expects that two values are equal according to reflect.DeepEqual.
func DeepEqualf[T any](t testing.TB, got, want T, format string, args ...any) {
	if !reflect.DeepEqual(got, want) {
		t.Helper()
		report(t, fmt.Sprintf(format, args...), got, "", want)
	}
}

// Lenf expects a number of elements in a slice, a map or a string.
func Lenf(t testing.TB, got any, want int, format string, args ...any) {
	if n := reflect.ValueOf(got).Len(); n != want {
		t.Helper()
		report(t, fmt.Sprintf(format, args...), counted(fmt.Sprintf("%d: %+v", n, got)), "", want)
	}
}

// AtMostf expects a limit.
func AtMostf[T cmp.Ordered](t testing.TB, got, want T, format string, args ...any) {
	if got > want {
		t.Helper()
		report(t, fmt.Sprintf(format, args...), got, "at most ", want)
	}
}

// AtLeastf expects a lower limit.
func AtLeastf[T cmp.Ordered](t testing.TB, got, want T, format string, args ...any) {
	if got < want {
		t.Helper()
		report(t, fmt.Sprintf(format, args...), got, "at least ", want)
	}
}

// Containsf expects a part of a text.
func Containsf(t testing.TB, got, want, format string, args ...any) {
	if !strings.Contains(got, want) {
		t.Helper()
		report(t, fmt.Sprintf(format, args...), got, "in it ", want)
	}
}

// ErrorContainsf expects an error, and a part of its text.
func ErrorContainsf(t testing.TB, got error, want, format string, args ...any) {
	if got == nil || !strings.Contains(got.Error(), want) {
		t.Helper()
		report(t, fmt.Sprintf(format, args...), got, "an error with ", want)
	}
}

// ErrorIsf expects an error that is, or wraps, another one.
func ErrorIsf(t testing.TB, got, want error, format string, args ...any) {
	if !errors.Is(got, want) {
		t.Helper()
		report(t, fmt.Sprintf(format, args...), got, "", want)
	}
}

// Succeed expects no error.
func Succeed(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Error(err)
	}
}

// Succeedf is Succeed with a text.
func Succeedf(t testing.TB, err error, format string, args ...any) {
	if err != nil {
		t.Helper()
		t.Errorf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// report writes what differs. relation says how got should relate to want.
func report(t testing.TB, what string, got any, relation string, want any) {
	t.Helper()
	if what != "" {
		what += ": "
	}
	t.Errorf("%sgot %s, want %s%s", what, format(got), relation, format(want))
}

// format quotes short texts, and puts longer ones into lines of their own.
func format(value any) string {
	text, ok := value.(string)
	switch {
	case !ok:
		return fmt.Sprintf("%+v", value)
	case strings.Contains(text, "\n"):
		return "\n" + text + "\n"
	default:
		return fmt.Sprintf("%q", text)
	}
}

// counted is a text that isn't quoted.
type counted string
