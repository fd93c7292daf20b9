// Package need skips tests on machines that lack something, such as a right, a program or a kernel feature.
package need

import (
	"os"
	"testing"
)

// Prefix begins the message of each test that this package skips. hack/test looks for it to
// list what a run has left out.
const Prefix = "left out: "

// Skip skips a test that needs what this machine or this user lacks, for example "root: it
// mounts a file system". A complete run as root in CI must not skip a test, so there the test
// fails. A short run and another user leave out what isn't there, in CI, too.
func Skip(t testing.TB, need string) {
	t.Helper()
	if os.Getenv("CI") == "true" && os.Geteuid() == 0 && !testing.Short() {
		t.Fatalf("a complete run as root in CI must not skip tests, but this one needs %s", need)
	}
	t.Skip(Prefix + need)
}

// Complete leaves a test out of short runs, because it takes long or others check the essentials.
func Complete(t testing.TB) {
	t.Helper()
	if testing.Short() {
		Skip(t, "a complete run")
	}
}

// Root skips a test that needs root, for what purpose says, for example "mounts a file system".
func Root(t testing.TB, purpose string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "root: it "+purpose)
	}
}

// APIServer skips a test if there are no programs of an API server.
func APIServer(t testing.TB) {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		Skip(t, "an API server: set KUBEBUILDER_ASSETS to the output of make envtest-assets")
	}
}
