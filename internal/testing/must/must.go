// Package must ends a test when a step fails that the test can't go on without.
package must

import (
	"fmt"
	"os"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// Succeed ends the test with the error of such a step, if there is one.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Succeedf is Succeed with a text that says what failed.
func Succeedf(t testing.TB, err error, format string, args ...any) {
	if err != nil {
		t.Helper()
		t.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// Equalf ends the test if two values differ.
func Equalf[T comparable](t testing.TB, got, want T, format string, args ...any) {
	if got != want {
		t.Helper()
		expect.Equalf(t, got, want, format, args...)
		t.FailNow()
	}
}

// ReadFile returns the content of a file, without which the test can't go on.
func ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	Succeed(t, err)
	return content
}
