// Package safety marks the failures of tests that saw a promise of safety broken.
package safety

// Violated begins the message of such a failure. hack/tools/retest looks for it: a test with real processes may fail
// because the machine is slow, and then runs again; but no machine is slow enough for two coordinators.
const Violated = "safety violated: "
