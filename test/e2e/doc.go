// Package e2e has tests only: they run this repository's images in a real cluster. `make test-e2e` runs them, in a
// throwaway cluster of their own or in that of the current kubeconfig.
package e2e
