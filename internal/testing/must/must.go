// Package must ends a test when a step fails that the test can't go on without.
package must

import "testing"

// Succeed ends the test with the error of such a step, if there is one.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
