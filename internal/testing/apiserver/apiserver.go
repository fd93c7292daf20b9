// Package apiserver is for tests: a real API server with its etcd, which the
// first test that needs one starts.
package apiserver

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Server is the API server of a package's tests. It is started from a test and
// not before them: go test takes a result from its cache unless what the tests
// themselves have read is another, the address of the binaries for one.
type Server struct {
	Environment envtest.Environment

	start func() (*rest.Config, error)
}

// New is a server that has the CRDs of these folders.
func New(crds ...string) *Server {
	s := &Server{Environment: envtest.Environment{CRDDirectoryPaths: crds, ErrorIfCRDPathMissing: true}}
	s.start = sync.OnceValues(s.Environment.Start)
	return s
}

// Main is a package's TestMain: it runs the tests, stops the server if there is
// one, and ends the process.
func (s *Server) Main(m *testing.M) {
	status := m.Run()
	if s.Environment.Config != nil {
		if err := s.Environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
			status = 1
		}
	}
	os.Exit(status)
}

// Config leads to the server, without which the test is skipped.
func (s *Server) Config(t testing.TB) *rest.Config {
	t.Helper()
	Need(t)
	config, err := s.start()
	if err != nil {
		t.Fatal("start the API server:", err)
	}
	return config
}

// Need skips a test where there are no binaries of an API server, which in CI is
// a failure.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("CI must not skip tests: set KUBEBUILDER_ASSETS to what make envtest-assets prints")
	}
	t.Skip("no API server: set KUBEBUILDER_ASSETS to what make envtest-assets prints")
}
