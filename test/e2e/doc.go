// Package e2e contains the end-to-end tests. They run this repository's images in a real cluster: in a throwaway cluster,
// or in the cluster of the current kubeconfig. Run them with `make test-e2e`.
package e2e
