// Package e2e contains the end-to-end tests. They run this repository's images in a kind cluster. Run them with `make
// test-e2e`.
package e2e
