// Package must ends a test when a step fails that the test can't go on without.
package must

import (
	"os"
	"testing"
)

// Succeed ends the test with the error of such a step, if there is one.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ReadFile returns the content of a file, without which the test can't go on.
func ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	Succeed(t, err)
	return content
}
